"""The values of an HTML form: an answer as fields of a submitted form, and back.

The names of fields are paths: `f/address/street`, `f/lines/2/price`; `~0` and `~1` stand for `~` and `/` in the name of
a property. Beside a field there may be facts about it, whose names end with a tilde and a letter:

    ~n  an object, a list or checkboxes were shown; of a list it is the number of its rows
    ~g  an optional object or list is given
    ~k  a row of a list has a value even if it is empty
    ~o  the value that the shown text stands for, as JSON; empty: the value is left out
    ~z  the offset of a time from UTC
    ~x  of the whole form: fields of the answer that the form does not list, as a JSON object

`parse` reads only what is there, so values of any origin are read or refused. An object or a list may always be given
as JSON under its own name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.forms import Form, Problem
from holdfast.forms.json_schema import Json, read_datetime
from holdfast.forms.validate import check_value
from holdfast.web.form_nodes import ROWS_MAX, Node, Values, nodes_of, row_count, rows_of

ROWS_TOTAL_MAX: Final = 2_000
"""Rows of all lists of a form."""

ABSENT: Final = object()
"""The value is left out of the answer."""
INITIAL: Final = object()
"""No value yet: the field is shown as for a new answer."""
LEAVE_OUT: Final = "absent"
"""The token of the option that leaves a value out; it is not JSON."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,1000}(?:[.]0{1,20})?")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,400}(?:[.][0-9]{0,400})?|[.][0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_OFFSET: Final = re.compile(r"([+-][0-9]{2}):?([0-9]{2})")
_ZONED: Final = re.compile(r"(.+?)[ ]?(Z|[+-][0-9]{2}:[0-9]{2})", re.IGNORECASE | re.DOTALL)


# --- an answer as values ---------------------------------------------------------------------------------------------


def to_values(form: Form, answer: object = INITIAL, prefix: str = "f") -> Values:
    """The values of a form for an answer, or for a new one, with its defaults."""
    values: Values = {}
    for node in nodes_of(form, prefix):
        if answer is INITIAL:
            given: object = INITIAL
        elif form.single:
            given = answer
        else:
            given = answer.get(node.field.name, ABSENT) if isinstance(answer, Mapping) else ABSENT
        values |= encode(node, given)
    if isinstance(answer, Mapping) and not form.single:
        known = {field.name for field in form.fields}
        others = {name: value for name, value in answer.items() if name not in known}
        values |= {f"{prefix}~x": [json.dumps(others, ensure_ascii=False, indent=2)]} if others else {}
    return values


def encode(node: Node, value: object) -> Values:
    """The values of one field. What the text alone would not mean is added as `~o`."""
    if value is INITIAL:
        return _encode(node, node.field.default if node.field.has_default else INITIAL)
    values = _encode(node, value)
    if not _is_same(decode(node, values, []), value):
        values[f"{node.name}~o"] = ["" if value is ABSENT else json.dumps(value)]
    return values


def _encode(node: Node, value: object) -> Values:
    is_given = value is not ABSENT and value is not INITIAL and value is not None
    match node.shape:
        case "object":
            return _encode_object(node, value, is_given=isinstance(value, Mapping))
        case "rows":
            return _encode_rows(node, value if isinstance(value, list) else [], is_given=is_given)
        case "choices":
            chosen = {token(one) for one in value} if isinstance(value, list) else set()
            tokens = [text for choice in node.field.choices if (text := token(choice.value)) in chosen]
            shown = {f"{node.name}~n": ["1"]} | _given(node, is_given=is_given)
            return shown | ({node.name: tokens} if tokens else {})
        case "yes_no" | "choice":
            if is_given or (value is None and node.field.nullable):
                return {node.name: [token(value)]}
            return {node.name: [LEAVE_OUT]} if value is ABSENT and node.may_be_left_out else {}
        case "json":
            return {node.name: [json.dumps(value, ensure_ascii=False, indent=2) if is_given else ""]}
        case "any":
            return {node.name: [_any_text(node, value) if is_given else ""]}
        case "datetime" if is_given:
            text, zone = _split_zone(str(value))
            return {node.name: [text], f"{node.name}~z": [zone]}
        case "datetime":
            return {node.name: [""], f"{node.name}~z": [""]}
        case _:
            return {node.name: [_text_of(value) if is_given else ""]}


def _encode_object(node: Node, value: object, *, is_given: bool) -> Values:
    known = {child.field.name for child in node.children}
    if isinstance(value, Mapping) and not known.issuperset(value):  # fields that the form does not list
        return {node.name: [json.dumps(dict(value), ensure_ascii=False, indent=2)]}
    values: Values = {f"{node.name}~n": ["1"]} | _given(node, is_given=is_given)
    for child in node.children:
        part = value.get(child.field.name, ABSENT) if isinstance(value, Mapping) else INITIAL
        values |= encode(child, part)
    return values


def _encode_rows(node: Node, items: list[object], *, is_given: bool) -> Values:
    if len(items) > ROWS_MAX:
        return {node.name: [json.dumps(items, ensure_ascii=False, indent=2)]}
    values: Values = {f"{node.name}~n": [str(len(items))]} | _given(node, is_given=is_given)
    for index, part in enumerate(items):
        values |= {f"{node.name}/{index}~k": ["1"]} | encode(node.item(index), part)
    return values


def _given(node: Node, *, is_given: bool) -> Values:
    return {f"{node.name}~g": ["1"]} if node.is_optional and is_given else {}


def token(value: object) -> str:
    """A choice as it is submitted."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _any_text(node: Node, value: object) -> str:
    """Text as it is if it is read back as that text; everything else as JSON."""
    if isinstance(value, str) and value.strip() and _is_same(_read_any(node, value), value):
        return value
    return json.dumps(value, ensure_ascii=False, indent=None if isinstance(value, str) else 2)


def _split_zone(text: str) -> tuple[str, str]:
    found = _ZONED.fullmatch(text)
    if found is None or read_datetime(text) is None:
        return text, ""
    return found[1], "" if found[2] in ("Z", "+00:00") else found[2]


def _is_same(one: object, other: object) -> bool:
    """Whether two values are equal in type, too."""
    if one is ABSENT or other is ABSENT:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


# --- values as an answer ---------------------------------------------------------------------------------------------


def parse(form: Form, values: Mapping[str, list[str]], prefix: str = "f") -> tuple[Any, list[Problem]]:
    """The answer that submitted values mean, and its problems. Without problems `app.answer` accepts it.

    A value that cannot be read is the typed text, so its problem names it. Never raises.
    """
    if _count_rows(values) > ROWS_TOTAL_MAX:
        return None, [Problem("answer", f"has more than {ROWS_TOTAL_MAX} rows; write the list as JSON")]
    problems: list[Problem] = []
    found: dict[str, object] = {}
    for node in nodes_of(form, prefix):
        value = decode(node, values, problems)
        if value is not ABSENT:
            found[node.field.name] = value
    if form.single and not found:
        node = nodes_of(form, prefix)[0]
        if not node.field.has_default:
            return None, problems or [Problem(node.path, "is missing")]
        found[node.field.name] = node.field.default
    others = values.get(f"{prefix}~x", [""])[-1]
    if others.strip() and not form.single:
        more = _read_json("answer", others, problems)
        found = {**more, **found} if isinstance(more, dict) else found
    known = [problem.field for problem in problems]
    return found, problems + [
        problem for problem in form.check(found).problems if not any(is_inside(problem.field, path) for path in known)
    ]


def is_inside(path: str, outer: str) -> bool:
    """Whether a path of a problem is that of a field, or of a part of it."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def decode(node: Node, values: Mapping[str, list[str]], problems: list[Problem]) -> Any:
    """The value of one field, or ABSENT."""
    original = _original(node, values)
    if original is not INITIAL:
        return original
    given = values.get(node.name)
    match node.shape:
        case "object" | "rows" if given is None:
            return _decode_parts(node, values, problems)
        case "choices":
            return _decode_choices(node, values)
        case "yes_no" | "choice":
            return _decode_choice(node, given[-1] if given else "")
    if not given:
        return ABSENT
    text = _clean(given[-1])
    if node.shape == "datetime" and text.strip():
        zone = values.get(f"{node.name}~z", [""])[-1].strip()
        return _with_zone(text.strip(), zone)
    if not (text if node.shape == "text" else text.strip()):
        return _blank(node, problems)
    return _read(node, text, problems)


def _original(node: Node, values: Mapping[str, list[str]]) -> Any:
    """The value that the shown text stood for, if that is what was submitted; else INITIAL."""
    stored = values.get(f"{node.name}~o")
    if not stored:
        return INITIAL
    try:
        value: object = json.loads(stored[-1]) if stored[-1] else ABSENT
        shown = _encode(node, value)
    except (ValueError, RecursionError, AttributeError, TypeError):
        return INITIAL
    own = [node.name, f"{node.name}~z", f"{node.name}~g"]
    is_same = all(_texts(shown.get(name)) == _texts(values.get(name)) for name in own)
    if is_same and node.shape in ("object", "rows") and node.name not in values:
        is_same = not _is_touched(node, values)
    return value if is_same else INITIAL


def _texts(given: list[str] | None) -> list[str]:
    return [_clean(text) for text in given or () if text]


def _clean(text: str) -> str:
    """Text as it was before a browser sent it: it sends two signs for a line break, and none that is not text."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def _blank(node: Node, problems: list[Problem]) -> Any:
    """What an empty field means."""
    if node.shape == "any":
        if node.field.required:
            problems.append(Problem(node.path, "must not be empty"))
        return ABSENT
    if node.field.nullable:
        return None
    if node.may_be_left_out:
        return ABSENT
    if node.shape != "text":
        problems.append(Problem(node.path, "must not be empty"))
    return ""


def _read(node: Node, text: str, problems: list[Problem]) -> Any:
    match node.shape:
        case "integer" if _WHOLE.fullmatch(text.strip()):
            return int(text.strip().partition(".")[0])
        case "number" if _NUMBER.fullmatch(text.strip()):
            return float(text.strip())
        case "integer" | "number" | "date":
            return text.strip()
        case "text":
            return text
        case "any":
            return _read_any(node, text)
    return _read_json(node.path, text, problems)


def _read_json(path: str, text: str, problems: list[Problem]) -> object:
    """The value of a JSON text, or the text with a problem."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        problems.append(Problem(path, f"is not valid JSON: {error}"))
    except RecursionError:
        problems.append(Problem(path, "is nested too deeply"))
    else:
        return value
    return text


def _read_any(node: Node, text: str) -> Any:
    """JSON if it is JSON that fits, else the text."""
    try:
        value: Json = json.loads(text)
        if not check_value(node.root, value)[1]:
            return value
    except (ValueError, RecursionError):
        return text
    return text if not check_value(node.root, text)[1] else value


def _with_zone(text: str, zone: str) -> str:
    """A time with its offset; without one it is in UTC."""
    moment = read_datetime(text)
    if moment is None or moment.tzinfo is not None:
        return text
    offset = _OFFSET.fullmatch(zone)
    if offset:
        return f"{text}{offset[1]}:{offset[2]}"
    return f"{text}Z" if zone.upper() in ("", "Z", "UTC") else f"{text}{zone}"


def _decode_choice(node: Node, text: str) -> Any:
    if text in ("", LEAVE_OUT):
        return ABSENT
    if text == "null":
        return None
    if node.shape == "yes_no":
        return {"true": True, "false": False}.get(text, text)
    return next((choice.value for choice in node.field.choices if token(choice.value) == text), text)


def _decode_choices(node: Node, values: Mapping[str, list[str]]) -> Any:
    tokens = values.get(node.name, [])
    if not tokens and f"{node.name}~n" not in values:
        return ABSENT
    if not tokens and node.is_optional and f"{node.name}~g" not in values:
        return None if node.field.nullable else ABSENT
    return [_decode_choice(node, text) for text in tokens]


def _decode_parts(node: Node, values: Mapping[str, list[str]], problems: list[Problem]) -> Any:
    if f"{node.name}~n" not in values:
        return ABSENT
    if node.is_optional and f"{node.name}~g" not in values and not _is_touched(node, values):
        return None if node.field.nullable else ABSENT
    if node.shape == "object":
        parts = {child.field.name: decode(child, values, problems) for child in node.children}
        return {name: value for name, value in parts.items() if value is not ABSENT}
    found = []
    for item in rows_of(node, values):
        if f"{item.name}~k" in values or _differs(item, values):
            value = decode(item, values, problems)
            if value is ABSENT:
                problems.append(Problem(item.path, "is missing"))
            found.append(None if value is ABSENT else value)
    return found


def _count_rows(values: Mapping[str, list[str]]) -> int:
    return sum(row_count(given) for name, given in values.items() if name.endswith("~n"))


def _is_touched(node: Node, values: Mapping[str, list[str]]) -> bool:
    """Whether something was typed inside an object or a list."""
    if node.shape == "rows":
        return any(f"{item.name}~k" in values or _differs(item, values) for item in rows_of(node, values))
    return any(_differs(child, values) for child in node.children)


def _differs(node: Node, values: Mapping[str, list[str]]) -> bool:
    """Whether the submitted values of a field are not those of a new one."""
    shown = encode(node, INITIAL)
    names = {*_names(node), *(name for name in shown if not name.endswith(("~o", "~k")))}
    return any(_texts(values.get(name)) != _texts(shown.get(name)) for name in names)


def _names(node: Node) -> Iterator[str]:
    """The names under which a field, or a property of it, can have values."""
    yield from (node.name, f"{node.name}~n", f"{node.name}~g", f"{node.name}~z")
    if node.shape == "object":
        for child in node.children:
            yield from _names(child)
