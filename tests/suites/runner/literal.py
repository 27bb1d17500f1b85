"""The notation of bodies and expectations: {field: value, list: [..]}, and how an answer is held against it."""
import re

TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([{}\[\]:,])|([^\s{}\[\]:,"]+))')
ERRORS = {}


class Any:
    pass


def parse(text, names):
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        found = TOKEN.match(text, at)
        if not found:
            raise ValueError(f"cannot read: {text[at:]}")
        tokens.append(found.group(0).strip())
        at = found.end()
    value, rest = take(tokens, names)
    if rest:
        raise ValueError(f"left over: {' '.join(rest)}")
    return value


def take(tokens, names):
    if not tokens:
        raise ValueError("a value is missing")
    head, rest = tokens[0], tokens[1:]
    if head == "{":
        out = {}
        while rest[0] != "}":
            key = rest[0]
            if rest[1] != ":":
                raise ValueError(f"':' expected after {key}")
            out[key], rest = take(rest[2:], names)
            if rest[0] == ",":
                rest = rest[1:]
        return out, rest[1:]
    if head == "[":
        out = []
        while rest[0] != "]":
            value, rest = take(rest, names)
            out.append(value)
            if rest[0] == ",":
                rest = rest[1:]
        return out, rest[1:]
    return atom(head, names), rest


def atom(word, names):
    if word.startswith('"'):
        return word[1:-1].replace('\\"', '"')
    if word.startswith("$"):
        if word[1:] not in names:
            raise KeyError(f"{word} has no value yet")
        return names[word[1:]]
    if word.startswith("x'"):
        return bytes.fromhex(word[2:-1])
    if word in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[word]
    try:
        return int(word, 0)
    except ValueError:
        return word


def differs(want, got, names, path="answer"):
    """None where `got` is as wanted, else a sentence. Objects: only the fields named; lists: element by element."""
    if isinstance(want, str):
        if want == "_":
            return None
        if want.startswith("?"):
            names[want[1:]], names[want[1:] + "_text"] = got, str(got)
            return None
        for sign, holds in ((">=", lambda a, b: a >= b), ("<=", lambda a, b: a <= b), (">", lambda a, b: a > b), ("<", lambda a, b: a < b)):
            if want.startswith(sign) and isinstance(got, int):
                limit = want[len(sign):]
                limit = names[limit[1:]] if limit.startswith("$") else int(limit)
                return None if holds(got, limit) else f"{path}: {got}, wanted {want}"
        if want.startswith("~"):
            return None if isinstance(got, str) and re.search(want[1:], got) else f"{path}: {got!r}, wanted text like {want[1:]}"
        if "|" in want:  # one of these
            found = [differs(each, got, names, path) for each in want.split("|")]
            return None if None in found else f"{path}: {found[-1].split(': ', 1)[1]}, or another of {want}"
        if want.startswith("!"):
            unwanted = names[want[2:]] if want.startswith("!$") else want[1:]
            return differs(unwanted, got, names, path) is None and f"{path}: {got!r} is what it must not be" or None
        if want in ERRORS and isinstance(got, int):
            name = next((name for name, code in ERRORS.items() if code == got), got)
            return None if ERRORS[want] == got else f"{path}: {name}, wanted {want}"
    if isinstance(want, dict) and isinstance(got, dict):
        for key, value in want.items():
            if key not in got:
                return f"{path}: no field {key}; there are {', '.join(got)}"
            found = differs(value, got[key], names, f"{path}.{key}")
            if found:
                return found
        return None
    if isinstance(want, list) and isinstance(got, list):
        if want and want[0] == "has":  # [has {…}, {…}]: each one is somewhere in the list
            missing = [each for each in want[1:] if all(differs(each, one, dict(names)) for one in got)]
            return f"{path}: nothing like {missing[0]} among {len(got)}" if missing else None
        if want and want[0] == "lacks":
            there = [each for each in want[1:] if any(not differs(each, one, dict(names)) for one in got)]
            return f"{path}: {there[0]} is there" if there else None
        if len(want) != len(got):
            return f"{path}: {len(got)} elements ({str(got)[:3000]}), wanted {len(want)}"
        return next((found for at, (w, g) in enumerate(zip(want, got)) if (found := differs(w, g, names, f"{path}[{at}]"))), None)
    return None if want == got and isinstance(want, bool) == isinstance(got, bool) else f"{path}: {got!r}, wanted {want!r}"
