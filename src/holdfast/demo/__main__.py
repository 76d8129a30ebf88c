"""The demo's show: three processes, a person, a kill, and what is on record afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

import holdfast
from holdfast.demo.agent import ORDER, RUN_ID, app_in, payments

_QUESTION: Final = f"My lamp (order {ORDER}) never arrived. Can I have my money back?"
_BOLD, _DIM, _RED, _GREEN, _END = (
    ("\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("",) * 5
)


def main(arguments: list[str]) -> None:
    """Without arguments: the show. With some: what one of its processes does."""
    if arguments[:1] == ["start"]:
        app_in(arguments[1]).start("support_agent", _QUESTION, run_id=RUN_ID)
    elif arguments[:1] == ["answer"]:
        approve = {"approve": arguments[2] == "yes", "note": "" if arguments[2] == "yes" else "not by the terms"}
        app_in(arguments[1]).answer(RUN_ID, approve, by=arguments[3])
    elif arguments[:1] == ["resume"]:
        app_in(arguments[1]).resume(RUN_ID)
    else:
        with tempfile.TemporaryDirectory() as directory:
            show(directory)


def show(directory: str) -> None:
    """The whole story."""
    say(f"{_BOLD}A customer writes:{_END} {_QUESTION}")
    process = begin("start", directory)
    process.wait(60)
    say(f"Process {process.pid} let the agent work until it needs a person, and has ended. Nothing runs now.")
    with app_in(directory) as app:
        gate = app.handle(RUN_ID).gates()[0]
        timeline(app, since=0)
        approved, by = ask_the_person(gate)
        seen = len(app.store.journal(RUN_ID))
        killed = approved and kill_in_the_payment(directory, by)
        if not approved:
            begin("answer", directory, "no", by).wait(60)
        if killed:
            process = begin("resume", directory)
            process.wait(60)
            say(f"Process {process.pid} takes the run over at once, asks the bank, and finds that it had paid.")
        timeline(app, since=seen)
        say(f"{_BOLD}The customer reads:{_END} {app.handle(RUN_ID).result(timeout=60)}")
        books(app, directory)


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """Start one of the demo's processes."""
    return subprocess.Popen([sys.executable, "-m", "holdfast.demo", *arguments])


def kill_in_the_payment(directory: str, by: str) -> bool:
    """Answer in a process of its own, and kill that one when the bank has paid and the receipt is still out."""
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
        "the bank has paid, and nobody got the receipt."
    )
    return True


def ask_the_person(gate: holdfast.GateInfo) -> tuple[bool, str]:
    """The gate's question: in a terminal to who sits there, else answered with yes."""
    say(f"{_BOLD}It waits for an answer:{_END} {gate.prompt}")
    if sys.stdin.isatty() and sys.stdout.isatty():
        return input("    yes or no? ").strip().lower() in ("", "y", "yes"), "you"
    print("    yes (nobody sits at a terminal, so the demo says it)")
    return True, "demo"


def timeline(app: holdfast.App, since: int) -> None:
    """What the journal says, from position `since` on."""
    print()
    for entry in app.store.journal(RUN_ID, after=since):
        text = described(entry)
        if text:
            print(f"    {_DIM}{entry.position:3}  {entry.created_at:%H:%M:%S}{_END}  {text}", flush=True)
            time.sleep(0.05)


def described(entry: holdfast.Entry) -> str:
    """One line about an entry; nothing for those that only close a turn."""
    data: dict[str, Any] = entry.data
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


def brief(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, dict) and "content" in value:
        return f"{value['content']} {value.get('tool', '')}".strip()
    text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= 70 else f"{text[:67]}…"


def books(app: holdfast.App, directory: str) -> None:
    """The ledger and the bank's book: they agree."""
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
    print(f"\n{_GREEN}    Paid {'once' if len(paid) == 1 else 'nothing'}. Nothing lost, nothing done twice.{_END}")


def say(text: str) -> None:
    """A sentence of the story."""
    print(f"\n{text}", flush=True)
    time.sleep(0.4 if sys.stdout.isatty() else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
