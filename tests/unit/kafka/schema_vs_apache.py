"""Holds every schema field by field against the message definitions inside Apache's jars.

Compared: kind, key, valid and flexible versions, and of each field name, order, type, versions, nullable versions, tag,
default, ignorable, whether it is kept inflexible. Ours alone (ciuic_*) are not in Apache's jars and are left out.
"""

import json
import pathlib
import re
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path += [str(ROOT / "transport/kafka/schema"), str(HERE / "support")]
import apache_jars  # noqa: E402
import generate  # noqa: E402


def apache_messages():
    """Every definition in Kafka's jars, by name."""
    found = {}
    for jar in apache_jars.libs().glob("kafka-*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if not name.endswith(".json"):
                    continue
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.M)
                try:
                    message = json.loads(text)
                except ValueError:
                    continue
                if isinstance(message, dict) and "validVersions" in message:
                    found[message["name"]] = message
    return found


def snake(name):
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def default_of(kind, nullable, text):
    """A default in one form for both sides."""
    if text is None or text == '""':
        text = ""
    text = str(text).lower() if kind == "bool" else str(text)
    if kind == "bool":
        return text == "true"
    if kind.startswith(("int", "uint")):
        return int(text or "0", 0)
    return text


class Comparison:
    def __init__(self):
        self.fields = 0
        self.problems = []

    def same(self, where, what, ours, theirs):
        if ours != theirs:
            self.problems.append(f"{where}: {what} is {ours!r}, Apache has {theirs!r}")

    def compare_fields(self, where, ours, theirs):
        theirs = [field for field in theirs if field.get("versions") != "none"]
        self.same(where, "list of fields", [f.name for f in ours], [snake(f["name"]) for f in theirs])
        for mine, other in zip(ours, theirs):
            here = f"{where}.{mine.name}"
            self.fields += 1
            nullable = generate.versions(other.get("nullableVersions", "none"))
            self.same(here, "type", mine.kind, other["type"])
            self.same(here, "versions", mine.versions, generate.versions(other["versions"]))
            self.same(here, "nullable", mine.nullable, nullable)
            self.same(here, "tag", mine.tag, other.get("tag"))
            self.same(here, "tagged versions", mine.tagged, generate.versions(other.get("taggedVersions", "none")))
            self.same(here, "default", default_of(mine.kind, mine.can_be_null, mine.default),
                      default_of(other["type"], nullable, other.get("default")))
            self.same(here, "ignorable", mine.ignorable, other.get("ignorable") in (True, "true"))
            self.same(here, "inflexible", mine.flexible_none, other.get("flexibleVersions") == "none")
            self.compare_fields(here, mine.fields, other.get("fields", []))

    def compare(self, mine, other):
        self.same(mine.name, "kind", mine.kind, other["type"])
        self.same(mine.name, "key", mine.key, other.get("apiKey", -1))
        self.same(mine.name, "valid versions", mine.versions, generate.versions(other["validVersions"]))
        self.same(mine.name, "flexible versions", mine.flexible, generate.versions(other["flexibleVersions"]))
        self.same(mine.name, "unstable", mine.unstable, bool(other.get("latestVersionUnstable")))
        commons = {struct["name"]: struct for struct in other.get("commonStructs", [])}
        self.same(mine.name, "common structs", list(mine.structs), list(commons))
        for name, struct in mine.structs.items():
            if name in commons:
                self.same(f"{mine.name}.{name}", "versions", struct.versions, generate.versions(commons[name]["versions"]))
                self.compare_fields(f"{mine.name}.{name}", struct.fields, commons[name]["fields"])
        self.compare_fields(mine.name, mine.fields, other["fields"])


def main():
    theirs = apache_messages()
    comparison = Comparison()
    failed = compared = 0
    for path in sorted((ROOT / "transport/kafka/schema").glob("*.schema")):
        if path.stem.startswith("ciuic_"):
            continue
        for message in generate.parse(path):
            before = len(comparison.problems)
            if message.name not in theirs:
                comparison.problems.append(f"{path.name}: {message.name} is in none of Apache's jars")
            else:
                comparison.compare(message, theirs[message.name])
            compared += 1
            failed += len(comparison.problems) > before
    for problem in comparison.problems:
        print(problem)
    print(f"{comparison.fields} fields compared")
    print(f"{compared - failed} passed, {failed} failed")
    return 1 if failed or compared == 0 or comparison.fields < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
