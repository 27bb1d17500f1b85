"""Draws a Figure as SVG, by hand: text that can be selected, colours that follow the reader's light or dark, nothing from outside."""

import html
import math

import tables

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 34, 46
LEGEND_ROW = 18
# Told apart by people who do not see all colours (Okabe and Ito), by dashes and marks besides.
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#7b61c4", "#8a6d3b", "#5b8c2a", "#b04a5a")
LIMIT_COLOURS = ("#7d8590", "#9aa2ad", "#69717c", "#aab1bb", "#868e99", "#5f6670")  # in between on light and on dark
STYLE = """
.figure{--ink:#1b1f24;--soft:#5b636d;--grid:#d9dee4;--paper:#ffffff;font:12px system-ui,sans-serif}
@media (prefers-color-scheme:dark){.figure{--ink:#e8ebef;--soft:#a3acb8;--grid:#3a424d;--paper:#15191e}}
.figure text{fill:var(--ink)}.figure .soft{fill:var(--soft)}.figure .grid{stroke:var(--grid)}.figure .paper{fill:var(--paper)}
.figure .title{font-weight:600;font-size:13px}
"""


def colour(series):
    colours = LIMIT_COLOURS if series.kind == "limit" else COLOURS
    return colours[series.number % len(colours)]


def ticks(low, high, logarithmic):
    """Round numbers from below `low` to above `high`."""
    if logarithmic:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        return [10.0 ** power for power in range(first, max(last, first + 1) + 1)]
    high = high if high > low else low + 1
    rough = (high - low) / 5
    step = 10 ** math.floor(math.log10(rough))
    step = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= rough)
    return [step * number for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


class _Scale:
    def __init__(self, low, high, start, end, logarithmic):
        self.turn = math.log10 if logarithmic else float
        self.low, self.high, self.start, self.end = self.turn(low), self.turn(high), start, end

    def __call__(self, value):
        share = (self.turn(value) - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


def _text(x, y, words, anchor="start", css="", extra=""):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{css}"{extra}>{html.escape(words)}</text>'


def _mark(number, x, y, fill, title):
    inside = f"<title>{html.escape(title)}</title>"
    if number % 3 == 0:
        return f'<circle cx="{x}" cy="{y}" r="3.5" fill="{fill}">{inside}</circle>'
    if number % 3 == 1:
        return f'<rect x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4" fill="{fill}">{inside}</rect>'
    return f'<path d="M{x} {y - 4.4:.1f}l4.4 8h-8.8z" fill="{fill}">{inside}</path>'


def _frame(figure, height, body):
    return (f'<svg class="figure" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(figure.title, quote=True)}">'
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>' + _text(LEFT, 18, f"{figure.title} ({figure.y_title})", css="title") + "".join(body) + "</svg>")


def _bars(figure):
    """A bar a series, from the top down, its spread as a line over its end."""
    row, left = 26, 150
    scale_end = max(series.points[0][3] for series in figure.series) or 1
    body = []
    for number, series in enumerate(figure.series):
        _, value, low, high = series.points[0]
        y, width = TOP + number * row, (WIDTH - left - 90)
        size = [round(part / scale_end * width, 1) for part in (value, low, high)]
        body += [_text(left - 8, y + 15, series.name, "end"),
                 f'<rect x="{left}" y="{y + 4}" width="{max(size[0], 1)}" height="15" fill="{colour(series)}"><title>{tables.number(low)}…{tables.number(high)}</title></rect>',
                 f'<path class="grid" d="M{left + size[1]} {y + 11.5}H{left + size[2]}" style="stroke:var(--ink)" stroke-width="1"/>',
                 _text(left + size[2] + 6, y + 15, tables.number(value), css="soft")]
    return _frame(figure, TOP + len(figure.series) * row + 12, body)


def _legend(figure, top):
    """Names under the plot, as many a row as fit; the height they take."""
    body, x, y = [], LEFT, top
    for series in figure.series:
        width = 30 + 6.6 * len(series.name)
        if x + width > WIDTH:
            x, y = LEFT, y + LEGEND_ROW
        dash = ' stroke-dasharray="5 3"' if series.kind == "limit" else ""
        body += [f'<path d="M{x} {y - 4}h16" stroke="{colour(series)}" stroke-width="2"{dash}/>', _mark(series.number, x + 8, y - 4, colour(series), series.name),
                 _text(x + 21, y, series.name)]
        x += width
    return body, y - top + LEGEND_ROW


def _lines(figure):
    points = [point for series in figure.series for point in series.points]
    highest, lowest = max(point[3] for point in points), min(point[2] for point in points)
    if figure.y_logarithmic and lowest <= 0:
        lowest = min(point[1] for point in points)
    marks = ticks(lowest if figure.y_logarithmic else 0, highest, figure.y_logarithmic)
    values = [x for x, _ in figure.x_labels] + [point[0] for point in points]
    x_logarithmic = figure.x_logarithmic and min(values) > 0
    along = _Scale(min(values), max(values), LEFT + 14, WIDTH - RIGHT - 22, x_logarithmic)
    up = _Scale(marks[0], marks[-1], HEIGHT - BOTTOM, TOP + 4, figure.y_logarithmic)
    body = []
    for value in marks:
        y = up(value)
        body += [f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke-width="1"/>', _text(LEFT - 7, y + 4, tables.number(value), "end", "soft")]
    for x, label in figure.x_labels:
        body.append(_text(along(x), HEIGHT - BOTTOM + 17, label, "middle", "soft"))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, figure.x_title, "middle", "soft"))
    for series in figure.series:
        fill = colour(series)
        dash = ' stroke-dasharray="5 3"' if series.kind == "limit" else ""
        path = "M" + "L".join(f"{along(x)} {up(y)}" for x, y, _, _ in series.points)
        body.append(f'<path d="{path}" fill="none" stroke="{fill}" stroke-width="2"{dash}/>')
        for x, y, low, high in series.points:
            if high > low and (low > 0 or not figure.y_logarithmic):
                body.append(f'<path d="M{along(x)} {up(low)}V{up(high)}" stroke="{fill}" stroke-width="1"/>')
            body.append(_mark(series.number, along(x), up(y), fill, f"{series.name}: {tables.number(y)} ({tables.number(low)}…{tables.number(high)})"))
    legend, height = _legend(figure, HEIGHT + 6)
    return _frame(figure, HEIGHT + height, body + legend)


def draw(figure):
    return _bars(figure) if figure.bars else _lines(figure)


def standalone(figure):
    """A file of its own."""
    return draw(figure).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(">", f"><style>{STYLE}</style>", 1) + "\n"
