"""A result as one page: nothing is fetched, it reads in light and in dark, on paper and on a phone."""

import html

import announcement
import bars
import figures
import machine
import svg
import tables

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b636d;--line:#d9dee4;--paper:#ffffff;--card:#f6f8fa;--warn:#9a3412}
@media (prefers-color-scheme:dark){:root{--ink:#e8ebef;--soft:#a3acb8;--line:#3a424d;--paper:#15191e;--card:#1d232a;--warn:#fdba74}}
body{margin:0 auto;max-width:1180px;padding:1.2rem;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2.4rem 0 .2rem;border-top:1px solid var(--line);padding-top:1.2rem}h3{font-size:1rem;margin:1.4rem 0 .3rem}
p{margin:.3rem 0}.soft{color:var(--soft)}.warn{color:var(--warn);font-weight:600}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}th:first-child,td:first-child{text-align:left}th{font-weight:600;vertical-align:bottom;white-space:normal;max-width:8.5rem}
td.words,th.words{text-align:left;white-space:normal}tr.limit td{color:var(--soft)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(320px,1fr));gap:1rem;margin:.8rem 0}.figures svg{width:100%;height:auto;border:1px solid var(--line);border-radius:6px}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--soft)}nav a{margin-right:1rem;white-space:nowrap}a{color:inherit}
@media print{details{display:block}}
"""


def _table(head, rows, words=(), limits=frozenset()):
    def line(tag, cells):
        css = ' class="limit"' if cells[0] in limits else ""
        out = "".join(f'<{tag}{" class=words" if at in words else ""}>{html.escape(cell)}</{tag}>' for at, cell in enumerate(cells))
        return f"<tr{css}>{out}</tr>"

    return f'<div class="scroll"><table>{line("th", head)}{"".join(line("td", row) for row in rows)}</table></div>'.replace("class=words", 'class="words"')


def _point(benchmark, point):
    metrics = tables.shown_metrics(benchmark, point)
    rows = list(tables.rows(benchmark, point, metrics))
    if not rows:
        return ""
    limits = frozenset(row[0] for row in rows if row[0].endswith("(limit)"))
    return f"<h3>{html.escape(benchmark['axis']['title'])}: {html.escape(point['label'])}</h3>" + _table(["", *map(tables.head, metrics)], rows, limits=limits)


def _benchmark(benchmark, numbers):
    name = html.escape(benchmark["name"])
    who = [[one, about["what"]] for one, about in benchmark["contenders"].items()]
    what = [[metric["title"], metric["unit"], metric["what"] + {"more": "; more is better", "less": "; less is better"}.get(metric["better"], "")]
            for metric in benchmark["metrics"]]
    why = [[one["who"], f"{one['key']}={one['value']}", one["reason"]] for one in benchmark["settings"]]
    paths = [[one, ", ".join(filter(None, place["detail"].values()))] for point in benchmark["points"][:1] for one, place in point["contenders"].items() if place.get("detail")]
    return (f'<h2 id="{name}">{name}</h2><p><b>{html.escape(benchmark["question"])}</b></p><p class="soft">{html.escape(benchmark["workload"])}</p>'
            f'<div class="figures">{"".join(svg.draw(figure) for figure in figures.of_benchmark(benchmark, numbers))}</div>'
            + "".join(_point(benchmark, point) for point in benchmark["points"])
            + "<details><summary>Who is compared, what is measured, with which settings and why</summary>"
            + _table(["who", "what"], who, words=(1,)) + (_table(["who", "path and library"], paths, words=(1,)) if paths else "")
            + _table(["figure", "unit", "what"], what, words=(2,)) + (_table(["given to", "setting", "reason"], why, words=(1, 2)) if why else "") + "</details>")


def _bars(report):
    head, rows = bars.table(report)
    return '<h2 id="promises">The promises</h2>' + _table(head, rows, words=(1, 2, 3))


def _announcement(report):
    head, rows = announcement.table([report])
    return '<h2 id="announcement">The announcement</h2>' + _table(head, rows, words=(0, 1, 2, 3, 4))


def page(report):
    versions = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report["versions"].items() if value)
    warnings = []
    if report["options"]["quick"]:
        warnings.append("Quick: too little was moved to quote a figure.")
    if not report["complete"]:
        warnings.append(f"Not complete: {report['why']}.")
    warnings += [f"Failed: {one['benchmark']}: {one['why']}" for one in report["failures"]]
    links = " ".join(f'<a href="#{html.escape(one["name"])}">{html.escape(one["name"])}</a>' for one in report["benchmarks"])
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width,initial-scale=1"/>'
            f"<title>ciuic-bench {html.escape(report['date'])}</title><style>{STYLE}{svg.STYLE}</style></head><body>"
            f"<h1>CiuicKafka, measured</h1><p class=\"soft\">{html.escape(report['date'])}: {html.escape(machine.in_words(report['machine']))}. {html.escape(versions)}.</p>"
            f"<p class=\"soft\">Medians of {report['options']['rounds']} interleaved round(s) after a warm-up; ± is half of what the rounds went over. "
            f"Limits (dashed) are what this machine could do at most, measured in the same rounds. Load of the machine before: {report['load_before']}, "
            f"after: {report.get('load_after', '?')}.</p>"
            + "".join(f'<p class="warn">{html.escape(text)}</p>' for text in warnings)
            + f'<nav><a href="#promises">promises</a> {links} <a href="#announcement">announcement</a></nav>' + _bars(report)
            + "".join(_benchmark(one, figures.numbers_of(report)) for one in report["benchmarks"]) + _announcement(report) + "</body></html>\n")
