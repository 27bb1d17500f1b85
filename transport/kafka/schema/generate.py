"""Turns transport/kafka/schema/*.schema into C++: one header and one source a file, and the table of APIs.

    generate.py OUT_FOLDER FILE.schema …             writes OUT_FOLDER/<name>.h, .cpp, and apis.cpp
    generate.py --every OUT_FILE FILE.schema …       writes one header for tests: every message's walk, and their list

The notation (README.md beside this file tells it by example) is parsed by `parse`; tests and tools import it.
"""

import pathlib
import re
import sys

NEVER = 32767
NUMBERS = {"int8": ("std::int8_t", 1), "int16": ("std::int16_t", 2), "int32": ("std::int32_t", 4),
           "int64": ("std::int64_t", 8), "uint16": ("std::uint16_t", 2), "uint32": ("std::uint32_t", 4),
           "bool": ("bool", 1), "uuid": ("Uuid", 16)}
KINDS = ("request", "response", "data", "header", "metadata", "coordinator-key", "coordinator-value")


class SchemaError(Exception):
    pass


def versions(text):
    """'4-18', '12+', '1' or 'none' as (min, max); (1, 0) is no version."""
    if text == "none":
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), NEVER)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


class Field:
    def __init__(self, name, kind, when):
        self.name, self.kind, self.versions = name, kind, versions(when)
        self.nullable, self.tag, self.tagged, self.default = (1, 0), None, (1, 0), None
        self.ignorable = False
        self.flexible_none = False
        self.fields = []

    @property
    def element(self):
        return self.kind[2:] if self.kind.startswith("[]") else None

    @property
    def can_be_null(self):
        return self.nullable[0] <= self.nullable[1]


class Message:
    def __init__(self, kind, name):
        self.kind, self.name, self.key = kind, name, -1
        self.versions = self.flexible = (1, 0)
        self.unstable = False
        self.structs = {}  # common ones, by name
        self.fields = []


def parse(path):
    """The messages of one schema file."""
    messages = []
    stack = []
    for number, raw in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        line = raw.split("#", 1)[0].rstrip()
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        words = line.split()
        try:
            if depth == 0:
                if words[0] not in KINDS:
                    raise SchemaError(f"'{words[0]}' is none of {', '.join(KINDS)}")
                message = Message(words[0], words[1])
                rest = iter(words[2:])
                for word in rest:
                    if word == "key":
                        message.key = int(next(rest))
                    elif word == "versions":
                        message.versions = versions(next(rest))
                    elif word == "flexible":
                        message.flexible = versions(next(rest))
                    elif word == "unstable":
                        message.unstable = True
                    else:
                        raise SchemaError(f"'{word}' is not known here")
                messages.append(message)
                stack = [message.fields]
                continue
            if depth > len(stack):
                raise SchemaError("indented under something that has no fields")
            stack = stack[:depth]
            if words[0] == "struct" and depth == 1:
                field = Field(words[1], "[]" + words[1], words[2])
                messages[-1].structs[words[1]] = field
            else:
                field = Field(*words[:3])
                rest = iter(words[3:])
                for word in rest:
                    if word == "null":
                        field.nullable = versions(next(rest))
                    elif word == "tag":
                        field.tag, field.tagged = int(next(rest)), versions(next(rest))
                    elif word == "=":
                        field.default = next(rest)
                    elif word == "ignorable":
                        field.ignorable = True
                    elif word == "flexible":
                        field.flexible_none = next(rest) == "none"
                    else:
                        raise SchemaError(f"'{word}' is not known here")
                stack[-1].append(field)
            stack.append(field.fields)
        except (SchemaError, StopIteration, ValueError, IndexError, TypeError) as problem:
            sys.exit(f"{path}:{number}: {problem}")
    return messages


def holds(when, outer=(0, NEVER)):
    """C++ condition that `v` lies in `when`, given that it lies in `outer`; '' where it always does."""
    parts = []
    if when[0] > outer[0]:
        parts.append(f"v >= {when[0]}")
    if when[1] < outer[1]:
        parts.append(f"v <= {when[1]}")
    if when[0] > when[1]:
        return "false"
    return " && ".join(parts)


def is_error(field):
    return field.kind == "int16" and field.name.endswith("error_code")


def is_struct(kind):
    return kind not in NUMBERS and kind not in ("string", "bytes", "records")


def base_type(kind, field=None):
    if kind in NUMBERS:
        return "ErrorCode" if field is not None and is_error(field) else NUMBERS[kind][0]
    return {"string": "std::string", "bytes": "Buffer", "records": "Records"}.get(kind, kind)


def member_type(field):
    if field.element:
        inner = f"std::vector<{base_type(field.element)}>"
    else:
        inner = base_type(field.kind, field)
    if field.can_be_null and field.kind != "records":
        return f"std::optional<{inner}>"
    return inner


def literal(field):
    """The default as C++, for the member and for 'is it worth a tag'."""
    default = field.default
    if field.kind in NUMBERS and field.kind != "uuid":
        if is_error(field):
            return "ErrorCode::none" if default in (None, "0") else f"static_cast<ErrorCode>({default})"
        if field.kind == "bool":
            return default or "false"
        if default is None:
            return "0"
        value = int(default, 0)
        return "std::numeric_limits<std::int64_t>::min()" if value == -2 ** 63 else str(value)
    if field.can_be_null and field.kind != "records":
        return "std::nullopt" if default == "null" else f"{member_type(field)}(std::in_place)"
    if field.kind == "string" and default not in (None, '""'):
        return f'"{default}"'
    return None


def struct_of(field, message):
    """The struct's own field list: inline, or a common one."""
    name = field.element or field.kind
    return field.fields or message.structs[name].fields


def walk_structs(message):
    """Every struct once, leaves first: (name, fields)."""
    done = {}

    def visit(fields):
        for field in fields:
            name = field.element or field.kind
            if is_struct(name) and name not in done:
                inner = struct_of(field, message)
                visit(inner)
                done[name] = inner
    visit(message.fields)
    return done.items()


def emit_members(fields, indent):
    lines = []
    for field in fields:
        default = literal(field)
        lines.append(f"{indent}{member_type(field)} {field.name}{{{default}}};" if default not in (None, "std::nullopt")
                     else f"{indent}{member_type(field)} {field.name}{{}};")
    return lines


def emit_header(stem, messages):
    out = ["#pragma once", "#include <cstdint>", "#include <limits>", "#include <optional>", "#include <string>",
           "#include <utility>", "#include <vector>", "", '#include "transport/kafka/codec.h"', "",
           "namespace ciuic::kafka {", ""]
    for message in messages:
        out.append(f"struct {message.name} {{")
        out.append(f"  static constexpr std::int16_t api_key = {message.key};")
        out.append(f"  static constexpr VersionRange valid_versions{{{message.versions[0]}, {message.versions[1]}}};")
        flexible = message.flexible[0] if message.flexible[0] <= message.flexible[1] else "never_flexible"
        out.append(f"  static constexpr std::int16_t flexible_from = {flexible};")
        for name, fields in walk_structs(message):
            out.append(f"  struct {name} {{")
            out += emit_members(fields, "    ")
            out.append(f"    bool operator==(const {name}&) const = default;")
            out.append("  };")
        out += emit_members(message.fields, "  ")
        out.append(f"  bool operator==(const {message.name}&) const = default;")
        out.append("};")
        out.append(f"template <> ResultOf<{message.name}, DecodeError> decode<{message.name}>(Bytes bytes, std::int16_t version);")
        out.append(f"template <> void encode_into<{message.name}>(Frame& frame, const {message.name}& message, std::int16_t version);")
        out.append("")
    out.append("}  // namespace ciuic::kafka")
    return "\n".join(out) + "\n"


def smallest(kind, fields, message, flexible_from):
    """C++ expression: fewest bytes one element takes at version v."""
    if kind in NUMBERS:
        return str(NUMBERS[kind][1])
    if kind in ("string", "bytes", "records"):
        fixed = 2 if kind == "string" else 4
        return f"(flex ? 1 : {fixed})" if flexible_from < NEVER else str(fixed)
    return f"smallest_{kind}(v, flex)"


def emit_smallest(name, fields, message, flexible_from):
    terms = ["(flex ? 1 : 0)"]
    for field in fields:
        if field.tag is not None:
            continue
        if field.element or field.kind in ("bytes", "records"):
            size = "(flex ? 1 : 4)"
        elif is_struct(field.kind) and field.can_be_null:
            size = "1"
        else:
            size = smallest(field.kind, field.fields, message, flexible_from)
        condition = holds(field.versions)
        terms.append(f"({condition} ? {size} : 0)" if condition else size)
    return [f"[[maybe_unused]] std::size_t smallest_{name}([[maybe_unused]] std::int16_t v, [[maybe_unused]] bool flex) {{",
            f"  return static_cast<std::size_t>({' + '.join(terms)});", "}"]


def emit_value(field, message, walker, flexible_from, scope):
    """The statement that walks one field with `walker`, in a message or struct of versions `scope`."""
    flex = "false" if field.flexible_none or flexible_from == NEVER else "flex"
    target = f"m.{field.name}"
    nullable = holds(field.nullable, scope) or "true"
    if field.element:
        kind = field.element
        if kind in NUMBERS:
            body = f"{walker}.number(e);"
        elif kind in ("string", "bytes"):
            body = f"{walker}.{kind}(e, {flex});"
        else:
            body = f"walk_{kind}({walker}, e, v, flex);"
        null = f"{nullable}, " if field.can_be_null else ""
        least = smallest(kind, field.fields, message, flexible_from)
        return f"{walker}.array({target}, {flex}, {null}{least}, [&](auto& e) {{ {body} }});"
    if field.kind in NUMBERS:
        return f"{walker}.number({target});"
    if field.kind == "records":
        return f"{walker}.records({target}, {flex}, {nullable});"
    if field.kind in ("string", "bytes"):
        null = f", {nullable}" if field.can_be_null else ""
        return f"{walker}.{field.kind}({target}, {flex}{null});"
    if field.can_be_null:
        return f"{walker}.structure({target}, [&](auto& e) {{ walk_{field.kind}({walker}, e, v, flex); }});"
    return f"walk_{field.kind}({walker}, {target}, v, flex);"


def emit_walk(name, fields, message, flexible_from, scope):
    out = ["template <class W, class M>",
           f"void walk_{name}(W& w, M& m, [[maybe_unused]] std::int16_t v, [[maybe_unused]] bool flex) {{"]
    if not fields:
        out.append("  (void)m;")
    tagged = []
    for field in fields:
        if field.tag is not None:
            tagged.append(field)
            continue
        condition = holds(field.versions, scope)
        statement = emit_value(field, message, "w", flexible_from, scope)
        out.append(f"  if ({condition}) {statement}" if condition else f"  {statement}")
    if flexible_from < NEVER:
        if tagged:
            out.append("  if (flex) {")
            out.append("    w.tags([&](auto& tag) {")
            for field in sorted(tagged, key=lambda f: f.tag):
                condition = holds(field.tagged, scope) or "true"
                default = literal(field)
                default = default if default is not None else f"std::decay_t<decltype(m.{field.name})>{{}}"
                statement = emit_value(field, message, "x", flexible_from, scope)
                out.append(f"      tag.field({field.tag}, {condition}, !(m.{field.name} == {default}), "
                           f"[&](auto& x) {{ {statement} }});")
            out.append("    });")
            out.append("  }")
        else:
            out.append("  if (flex) w.tags([](auto&) {});")
    out.append("}")
    return out


def first_flexible(message):
    return message.flexible[0] if message.flexible[0] <= message.flexible[1] else NEVER


def emit_walks(message):
    """The walk of a message and of its structs, in a namespace of its own."""
    flexible_from = first_flexible(message)
    out = ["namespace {", f"namespace walk_{message.name}_ {{"]
    for name, fields in walk_structs(message):
        out += emit_smallest(name, fields, message, flexible_from)
        out += emit_walk(name, fields, message, flexible_from, message.versions)
    out += emit_walk("message", message.fields, message, flexible_from, message.versions)
    return out + ["}", "}"]


def emit_source(stem, messages):
    out = [f'#include "transport/kafka/messages/{stem}.h"', '#include "transport/kafka/walkers.h"', "",
           "namespace ciuic::kafka {"]
    for message in messages:
        flexible_from = first_flexible(message)
        out += emit_walks(message)
        flex = "false" if flexible_from == NEVER else f"v >= {flexible_from}"
        out += [f"template <> ResultOf<{message.name}, DecodeError> decode<{message.name}>(Bytes bytes, std::int16_t version) {{",
                f"  return walk::decode_by<{message.name}>(bytes, version, [](auto& w, auto& m, std::int16_t v) "
                f"{{ walk_{message.name}_::walk_message(w, m, v, {flex}); }});", "}",
                f"template <> void encode_into<{message.name}>(Frame& frame, const {message.name}& message, std::int16_t version) {{",
                f"  walk::encode_by(frame, message, version, [](auto& w, auto& m, std::int16_t v) "
                f"{{ walk_{message.name}_::walk_message(w, m, v, {flex}); }});", "}"]
    out.append("}  // namespace ciuic::kafka")
    return "\n".join(out) + "\n"


def emit_apis(messages):
    rows = sorted((m.key, m.name.removesuffix("Request"), m.versions, m.flexible) for m in messages if m.kind == "request")
    out = ['#include "transport/kafka/codec.h"', "", "#include <algorithm>", "", "namespace ciuic::kafka {", "namespace {",
           "constexpr ApiInfo apis[] = {"]
    for key, name, when, flexible in rows:
        first = flexible[0] if flexible[0] <= flexible[1] else "never_flexible"
        out.append(f'    {{{key}, "{name}", {{{when[0]}, {when[1]}}}, {first}}},')
    out += ["};", "}  // namespace", "const ApiInfo* find_api(std::int16_t key) {",
            "  const auto* found = std::lower_bound(std::begin(apis), std::end(apis), key,",
            "                                       [](const ApiInfo& api, std::int16_t wanted) { return api.key < wanted; });",
            "  return found != std::end(apis) && found->key == key ? found : nullptr;", "}",
            "}  // namespace ciuic::kafka"]
    return "\n".join(out) + "\n"


def emit_every(by_stem):
    """For tests, which fill messages at random: CIUIC_EVERY_MESSAGE(X) is X(name, kind) for each."""
    out = ["#pragma once"] + [f'#include "transport/kafka/messages/{stem}.h"' for stem in by_stem]
    out += ['#include "transport/kafka/walkers.h"', "", "namespace ciuic::kafka {"]
    every = [message for messages in by_stem.values() for message in messages]
    for message in every:
        out += emit_walks(message)
    out += ["}  // namespace ciuic::kafka", "", "#define CIUIC_EVERY_MESSAGE(X) \\"]
    out += [f"  X({message.name}, {message.kind.replace('-', '_')}) \\" for message in every]
    return "\n".join(out) + "\n\n"


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    if sys.argv[1] == "--every":
        paths = [pathlib.Path(name) for name in sys.argv[3:]]
        out = pathlib.Path(sys.argv[2])
        out.parent.mkdir(parents=True, exist_ok=True)
        write_if_changed(out, emit_every({path.stem: parse(path) for path in paths}))
        return
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    every = []
    for path in map(pathlib.Path, sys.argv[2:]):
        messages = parse(path)
        every += messages
        write_if_changed(folder / f"{path.stem}.h", emit_header(path.stem, messages))
        write_if_changed(folder / f"{path.stem}.cpp", emit_source(path.stem, messages))
    write_if_changed(folder / "apis.cpp", emit_apis(every))


if __name__ == "__main__":
    main()
