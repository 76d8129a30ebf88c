"""The demo: an agent whose process is killed in the middle of a payment.

The model is scripted, and the bank keeps a book. At the end the ledger of side effects must agree with that book.
With `--web` the page is served on the store of the demo, beside a worker, until it is stopped.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import holdfast

ORDER: Final = "A-17"
RUN_ID: Final = "order-17"
BANK_S: Final = 1.0
"""How long the bank takes to return the receipt after it has paid."""
Data = dict[str, Any]


def app_in(directory: str) -> holdfast.App:
    """Create the app; every process of the demo creates its own."""
    app = holdfast.App(f"sqlite:{Path(directory) / 'runs.db'}")
    book = Path(directory) / "bank.jsonl"

    def pay(order: str, amount: float, idempotency_key: str) -> Data:
        """Move money. The bank writes to its book at once and returns the receipt later."""
        line = json.dumps({"order": order, "amount": amount, "reference": idempotency_key[:8]})
        with open(book, "a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        time.sleep(BANK_S)
        return {"receipt": f"R-{idempotency_key[:8]}"}

    def find_payment(order: str, amount: float) -> object:
        """Look up a payment whose receipt was not received."""
        for payment in payments(directory):
            if payment["order"] == order and payment["amount"] == amount:
                return holdfast.Happened({"receipt": f"R-{payment['reference']}"})
        return holdfast.DidNotHappen

    @app.workflow
    def support_agent(run: holdfast.Run, question: str) -> str:
        messages = run.state.setdefault("messages", [{"role": "user", "content": question}])
        for _turn in run.loop():
            messages = run.state["messages"]
            reply = run.step(model, messages)
            messages.append(reply)
            if "tool" not in reply:
                return str(reply["content"])
            if reply["tool"] == "refund":
                order, amount = reply["args"]
                answer = run.ask(
                    f"Refund {amount:.2f} EUR for order {order}?",
                    {"approve": bool, "note": holdfast.field(str, default="", required=False)},
                    show=reply["args"],
                )
                if answer["approve"]:
                    result: object = run.effect(pay, order, amount, check=find_payment)
                else:
                    result = f"refused: {answer['note']}"
            else:
                result = run.step(TOOLS[reply["tool"]], *reply["args"])
            messages.append({"role": "tool", "content": result})
        raise AssertionError("the loop ends with a return")

    return app


def payments(directory: str) -> list[Data]:
    """Read the bank's book."""
    book = Path(directory) / "bank.jsonl"
    return [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []


# --- the model and its tools ---------------------------------------------------------------------------------------


def model(messages: list[Data]) -> Data:
    """Reply as a language model would, from a script."""
    time.sleep(0.15)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    order = re.findall(r"order ([\w-]+)", messages[0]["content"])[0]
    if not results:
        return {"role": "assistant", "content": "Let me look at the order.", "tool": "find_order", "args": [order]}
    if len(results) == 1:
        return {"role": "assistant", "content": "Where is the parcel?", "tool": "track", "args": [results[0]["parcel"]]}
    if len(results) == 2:
        amount = results[0]["paid"]
        return {"role": "assistant", "content": "It is lost.", "tool": "refund", "args": [order, amount]}
    if isinstance(results[-1], dict):
        return {"role": "assistant", "content": f"Your money is on its way, receipt {results[-1]['receipt']}."}
    return {"role": "assistant", "content": f"I am sorry, your refund was {results[-1]}."}


def find_order(order: str) -> Data:
    """Look up an order in the shop's database."""
    return {"order": order, "item": "lamp", "paid": 39.90, "parcel": "P-2201"}


def track(parcel: str) -> Data:
    """Ask the carrier for the status of a parcel."""
    return {"parcel": parcel, "status": "lost between hub and city", "since_days": 12}


TOOLS: Final = {"find_order": find_order, "track": track}


_QUESTION: Final = f"My lamp (order {ORDER}) never arrived. Can I have my money back?"
_BOLD, _DIM, _RED, _GREEN, _END = (
    ("\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("",) * 5
)


def main(arguments: list[str]) -> None:
    """Run the demo, with `--web` the page after it, or with other arguments one of its processes."""
    if arguments[:1] == ["start"]:
        app_in(arguments[1]).start("support_agent", _QUESTION, run_id=RUN_ID)
    elif arguments[:1] == ["answer"]:
        approve = {"approve": arguments[2] == "yes", "note": "" if arguments[2] == "yes" else "not by the terms"}
        app_in(arguments[1]).answer(RUN_ID, approve, by=arguments[3])
    elif arguments[:1] == ["resume"]:
        app_in(arguments[1]).resume(RUN_ID)
    elif arguments[:1] == ["worker"]:
        app_in(arguments[1]).worker(concurrency=2).run()
    else:
        with tempfile.TemporaryDirectory() as directory:
            show(directory)
            if "--web" in arguments or accepts_the_page():
                serve(directory)


def show(directory: str) -> None:
    """Run the demo in this process, with its other processes as children."""
    say(f"{_BOLD}A customer writes:{_END} {_QUESTION}")
    process = begin("start", directory)
    process.wait(60)
    say(f"Process {process.pid} executed the agent until it needed an answer, and has ended. No process is running.")
    with app_in(directory) as app:
        gate = app.handle(RUN_ID).gates()[0]
        timeline(app, since=0)
        approved, by = ask_user(gate)
        seen = len(app.store.journal(RUN_ID))
        killed = approved and kill_in_the_payment(directory, by)
        if not approved:
            begin("answer", directory, "no", by).wait(60)
        if killed:
            process = begin("resume", directory)
            process.wait(60)
            say(f"Process {process.pid} takes over the run at once, asks the bank and learns that it has paid.")
        timeline(app, since=seen)
        say(f"{_BOLD}The customer reads:{_END} {app.handle(RUN_ID).result(timeout=60)}")
        books(app, directory)


def accepts_the_page() -> bool:
    """Offer the page; without a terminal, print the command that opens it."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        say(f"{_BOLD}The page shows this run, and a second one that waits for you.{_END}")
        return input("    open it? yes or no (no) ").strip().lower() in ("y", "yes")
    say("To see the run on a page: holdfast demo --web")
    return False


def serve(directory: str) -> None:
    """Serve the page on the store of the demo, beside a worker, until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with app_in(directory) as app:
        app.start("support_agent", _QUESTION.replace(ORDER, "B-18"), run_id="order-18", enqueue=True)
    say(f"{_BOLD}Open this address.{_END} Ctrl-C ends the page, and the demo removes its store.")
    store = f"sqlite:{Path(directory) / 'runs.db'}"
    page = subprocess.Popen([sys.executable, "-m", "holdfast", "web", "--store", store, "--port", "0"])
    worker = begin("worker", directory)
    try:
        page.wait()
    except KeyboardInterrupt:
        print()
    finally:
        for process in (page, worker):
            process.terminate()
        for process in (page, worker):
            process.wait(60)


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a process of the demo."""
    return subprocess.Popen([sys.executable, "-m", "holdfast.demo", *arguments])


def kill_in_the_payment(directory: str, by: str) -> bool:
    """Answer in another process, and kill it when the bank has paid and has not returned the receipt."""
    process = begin("answer", directory, "yes", by)
    until = time.monotonic() + 60
    while not payments(directory):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the demo's process ended too early, with status {process.returncode}")
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    say(
        f"{_RED}Process {process.pid} was killed (SIGKILL) in the middle of the payment:{_END} "
        "the bank has paid, and the receipt was lost."
    )
    return True


def ask_user(gate: holdfast.GateInfo) -> tuple[bool, str]:
    """Ask the question of the gate; without a terminal the answer is yes."""
    say(f"{_BOLD}It waits for an answer:{_END} {gate.prompt}")
    if sys.stdin.isatty() and sys.stdout.isatty():
        return input("    yes or no? ").strip().lower() in ("", "y", "yes"), "you"
    print("    yes (no terminal: answered automatically)")
    return True, "demo"


def timeline(app: holdfast.App, since: int) -> None:
    """Print the journal after position `since`."""
    print()
    for entry in app.store.journal(RUN_ID, after=since):
        text = describe(entry)
        if text:
            print(f"    {_DIM}{entry.position:3}  {entry.created_at:%H:%M:%S}{_END}  {text}", flush=True)
            time.sleep(0.05)


def describe(entry: holdfast.Entry) -> str:
    """Describe an entry in one line; empty for entries that only end a turn."""
    data = entry.data
    match entry.kind:
        case "started":
            return f"started      {data['workflow']}"
        case "step":
            return f"step         {data['call'].partition('#')[0]:<12} {_DIM}{brief(data['result'])}{_END}"
        case "asked":
            return f"asked        {data['prompt']}"
        case "answered":
            return f"answered     {brief(data['answer'])} by {data['by']}"
        case "intent":
            return f"{_RED if 'again' not in data else ''}intent       {data.get('name', '')}{_END}"
        case "outcome":
            how = f"  ({data['how']})" if "how" in data else ""
            return f"{_GREEN}outcome      {brief(data['result'])}{how}{_END}"
        case "completed":
            return f"{_GREEN}completed{_END}"
    return ""


def brief(value: object) -> str:
    """Shorten a value to a few words."""
    if isinstance(value, dict) and "content" in value:
        return f"{value['content']} {value.get('tool', '')}".strip()
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= 70 else f"{text[:67]}…"


def books(app: holdfast.App, directory: str) -> None:
    """Print the ledger and the bank's book, and check that they agree."""
    print(f"\n{_BOLD}    ledger of side effects{_END}")
    for effect in app.store.effects(RUN_ID):
        print(f"      {effect.tool}  {effect.state}  {brief(effect.result)}")
    paid = payments(directory)
    print(f"{_BOLD}    the bank's book{_END}")
    for payment in paid:
        print(f"      order {payment['order']}  {payment['amount']:.2f} EUR  reference {payment['reference']}")
    done = sum(effect.done for effect in app.store.effects(RUN_ID))
    if len(paid) != done:
        raise SystemExit("the ledger and the bank disagree")
    print(f"\n{_GREEN}    Paid {'once' if len(paid) == 1 else 'nothing'}. No payment was lost or repeated.{_END}")


def say(text: str) -> None:
    """Print a sentence."""
    print(f"\n{text}", flush=True)
    time.sleep(0.4 if sys.stdout.isatty() else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
