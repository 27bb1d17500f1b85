"""The same figures by matplotlib, for slides and papers. The one module that needs it."""


class Missing(RuntimeError):
    """matplotlib is not there."""


def save(figure, path, colour):
    try:
        import matplotlib
    except ImportError:
        raise Missing("matplotlib is missing: install python3-matplotlib (bench/ciuic-bench report --png does), or use --svg or --html") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(figsize=(7, 4.2), dpi=150)
    if figure.bars:
        values = [series.points[0] for series in figure.series]
        errors = [[value - low for _, value, low, _ in values], [high - value for _, value, _, high in values]]
        axes.barh([series.name for series in figure.series], [value[1] for value in values], xerr=errors,
                  color=[colour(series) for series in figure.series], alpha=0.9)
        axes.invert_yaxis()
        axes.set_xlabel(figure.y_title)
    else:
        for series in figure.series:
            x, y, low, high = zip(*series.points)
            errors = [[max(value - least, 0) for value, least in zip(y, low)], [max(most - value, 0) for value, most in zip(y, high)]]
            axes.errorbar(x, y, yerr=errors, label=series.name, color=colour(series), marker="os^"[series.number % 3], markersize=4, capsize=2,
                          linestyle="--" if series.kind == "limit" else "-")
        if figure.x_logarithmic and min(x for x, _ in figure.x_labels) > 0:
            axes.set_xscale("log")
        if figure.y_logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks([x for x, _ in figure.x_labels], [label for _, label in figure.x_labels])
        axes.minorticks_off()
        axes.set_xlabel(figure.x_title)
        axes.set_ylabel(figure.y_title)
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize=8)
    axes.set_title(figure.title)
    canvas.tight_layout()
    canvas.savefig(path)
    pyplot.close(canvas)
