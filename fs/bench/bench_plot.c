/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figure of kvfs bench --replication as SVG: one panel a load, a group of bars a value size, a
 * bar a transport and setting, operations a second, with a line from the slowest to the fastest
 * run. Names that come from outside (the device's) are escaped.
 */
#include "fs/bench/bench_replication.h"

#include "common/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PLOT_COLUMNS 2U
#define PANEL_WIDTH 460.0
#define PANEL_HEIGHT 280.0
#define PANEL_LEFT 70.0   /* the axis and its numbers */
#define PANEL_RIGHT 12.0
#define PANEL_TOP 34.0    /* the title */
#define PANEL_BOTTOM 34.0 /* sizes */
#define PLOT_HEAD 84.0    /* title and legend */
#define PLOT_TICKS 4U
#define PLOT_BAR_NARROW 24.0 /* its figure doesn't fit above it */

struct plot {
	FILE *f;
	const struct bench_results *r;
	unsigned settings; /* how many are measured */
};

/* A panel: where its area lies, and what it shows. */
struct panel {
	double x, y, width, height;
	const struct bench_cell *cells;
	unsigned count;
	double top; /* operations a second at the upper edge */
};

static const char *plot_colour(enum addr_kind kind, unsigned setting)
{
	static const char *const colours[][BENCH_SETTINGS_MAX] = {
		[ADDR_TCP] = { "#4e79a7", "#a0cbe8" },
		[ADDR_SHM] = { "#e1812c", "#ffbe7d" },
		[ADDR_VERBS] = { "#3a923a", "#8cd17d" },
	};

	return colours[kind][setting];
}

static void plot_escaped(struct plot *p, const char *text)
{
	for (; *text; text++) {
		if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
			fprintf(p->f, "&#%d;", *text);
		else
			fputc((unsigned char)*text < 0x20 ? ' ' : *text, p->f);
	}
}

static void plot_text(struct plot *p, double x, double y, const char *anchor, int size,
		      const char *text)
{
	fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\">", x, y,
		anchor, size);
	plot_escaped(p, text);
	fputs("</text>\n", p->f);
}

/* Upwards from there. */
static void plot_text_up(struct plot *p, double x, double y, int size, const char *text)
{
	fprintf(p->f, "<text transform=\"translate(%.1f %.1f) rotate(-90)\" font-size=\"%d\">", x,
		y, size);
	plot_escaped(p, text);
	fputs("</text>\n", p->f);
}

static void plot_line(struct plot *p, double x1, double y1, double x2, double y2,
		      const char *colour)
{
	fprintf(p->f,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1,
		x2, y2, colour);
}

static void plot_rect(struct plot *p, double x, double y, double width, double height,
		      const char *colour)
{
	fprintf(p->f,
		"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y,
		width, height, colour);
}

/* 1, 2, 2.5 or 5 times a power of ten, at least v. */
static double plot_round_up(double v)
{
	static const double steps[] = { 1, 2, 2.5, 5, 10 };
	double power;
	unsigned i = 0;

	if (v <= 0)
		return 1;
	power = pow(10, floor(log10(v)));
	while (i + 1 < sizeof(steps) / sizeof(steps[0]) && steps[i] * power < v)
		i++;
	return steps[i] * power;
}

static void plot_rate(double v, char out[32])
{
	if (v >= 1e6)
		snprintf(out, 32, "%.3gM", v / 1e6);
	else if (v >= 1e3)
		snprintf(out, 32, "%.3gk", v / 1e3);
	else
		snprintf(out, 32, "%.3g", v);
}

static void plot_axes(struct plot *p, const struct panel *a)
{
	char text[32];

	for (unsigned i = 0; i <= PLOT_TICKS; i++) {
		double y = a->y + a->height - a->height * i / PLOT_TICKS;

		plot_line(p, a->x, y, a->x + a->width, y, i ? "#dddddd" : "#333333");
		plot_rate(a->top * i / PLOT_TICKS, text);
		plot_text(p, a->x - 6, y + 4, "end", 11, text);
	}
}

static void plot_bar(struct plot *p, const struct panel *a, const struct bench_cell *c,
		     unsigned setting, double x, double width)
{
	struct bench_spread s = BENCH_SPREAD(p->r, c, setting, ops);
	double base = a->y + a->height, scale = a->height / a->top, middle = x + width / 2;
	char text[32];

	plot_rect(p, x, base - s.median * scale, width, s.median * scale,
		  plot_colour(c->kind, setting));
	plot_line(p, middle, base - s.low * scale, middle, base - s.high * scale, "#333333");
	plot_rate(s.median, text);
	if (width < PLOT_BAR_NARROW)
		plot_text_up(p, middle + 3, base - s.high * scale - 4, 9, text);
	else
		plot_text(p, middle, base - s.high * scale - 4, "middle", 9, text);
}

/* The cells of one size are values apart: transport by transport, each with all sizes. */
static void plot_groups(struct plot *p, const struct panel *a)
{
	unsigned values = p->r->cfg->value_count, kinds = a->count / values;
	double group = a->width / values, width = group * 0.8 / (kinds * p->settings);
	char text[UNITS_TEXT_BYTES];

	for (unsigned v = 0; v < values; v++) {
		double x = a->x + group * v + group * 0.1;

		for (unsigned k = 0; k < kinds; k++) {
			for (unsigned s = 0; bench_setting_at(s); s++) {
				if (!bench_measures(p->r->cfg, s))
					continue;
				plot_bar(p, a, &a->cells[k * values + v], s, x, width * 0.92);
				x += width;
			}
		}
		plot_text(p, a->x + group * (v + 0.5), a->y + a->height + 16, "middle", 11,
			  units_format_size(p->r->cfg->values[v], text));
	}
}

static void plot_panel(struct plot *p, unsigned index)
{
	const struct bench_load *load = p->r->cfg->loads[index];
	struct panel a = {
		.x = PANEL_WIDTH * (index % PLOT_COLUMNS) + PANEL_LEFT,
		.y = PLOT_HEAD + PANEL_HEIGHT * (index / PLOT_COLUMNS) + PANEL_TOP,
		.width = PANEL_WIDTH - PANEL_LEFT - PANEL_RIGHT,
		.height = PANEL_HEIGHT - PANEL_TOP - PANEL_BOTTOM,
		.count = p->r->cell_count / p->r->cfg->load_count,
	};
	double most = 0;
	char title[128];

	a.cells = p->r->cells + (size_t)index * a.count;
	for (unsigned i = 0; i < a.count; i++) {
		for (unsigned s = 0; bench_setting_at(s); s++)
			most = fmax(most, BENCH_SPREAD(p->r, &a.cells[i], s, ops).high);
	}
	a.top = plot_round_up(most * 1.12);
	snprintf(title, sizeof(title), "%s: %s", load->name, load->what);
	plot_text(p, a.x, a.y - 14, "start", 13, title);
	plot_axes(p, &a);
	plot_groups(p, &a);
}

static void plot_legend(struct plot *p)
{
	unsigned values = p->r->cfg->value_count;
	unsigned kinds = p->r->cell_count / p->r->cfg->load_count / values;
	double x = PANEL_LEFT;
	char text[160];

	for (unsigned k = 0; k < kinds; k++) {
		const struct bench_cell *c = &p->r->cells[k * values];

		for (unsigned s = 0; bench_setting_at(s); s++) {
			if (!bench_measures(p->r->cfg, s))
				continue;
			snprintf(text, sizeof(text), "%s%s, %s", bench_transport_name(c->kind),
				 c->emulated ? " (emulated)" : "", bench_setting_at(s)->name);
			plot_rect(p, x, 56, 12, 12, plot_colour(c->kind, s));
			plot_text(p, x + 17, 66, "start", 11, text);
			x += 34 + 6.2 * (double)strlen(text);
		}
	}
	if (p->r->device[0]) {
		snprintf(text, sizeof(text),
			 "%s is an emulated RDMA device: its bars show function, not speed",
			 p->r->device);
		plot_text(p, PANEL_LEFT, 84, "start", 11, text);
	}
}

static void plot_all(struct plot *p)
{
	const struct bench_replication *cfg = p->r->cfg;
	unsigned columns = cfg->load_count < PLOT_COLUMNS ? cfg->load_count : PLOT_COLUMNS;
	unsigned lines = (cfg->load_count + PLOT_COLUMNS - 1) / PLOT_COLUMNS;
	double width = PANEL_WIDTH * (columns < 2 ? 2 : columns);
	double height = PLOT_HEAD + PANEL_HEIGHT * lines;
	char text[160];

	fprintf(p->f,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" fill=\"#222222\">\n",
		width, height, width, height);
	plot_rect(p, 0, 0, width, height, "#ffffff");
	plot_text(p, PANEL_LEFT, 26, "start", 17, "kvfs replication: operations a second");
	snprintf(text, sizeof(text),
		 "%u mirror%s, protocol %c, medians of %u run%s of %g s, lines from slowest to "
		 "fastest",
		 cfg->mirrors, cfg->mirrors == 1 ? "" : "s", "ABC"[cfg->protocol], cfg->runs,
		 cfg->runs == 1 ? "" : "s", cfg->each.seconds);
	plot_text(p, PANEL_LEFT, 44, "start", 12, text);
	plot_legend(p);
	for (unsigned i = 0; i < cfg->load_count; i++)
		plot_panel(p, i);
	fputs("</svg>\n", p->f);
}

int bench_plot_write(const struct bench_results *r, const char *path)
{
	struct plot p = { .f = fopen(path, "we"), .r = r };
	int err;

	if (!p.f)
		return -errno;
	for (unsigned i = 0; bench_setting_at(i); i++)
		p.settings += bench_measures(r->cfg, i);
	plot_all(&p);
	err = fflush(p.f) != 0 || ferror(p.f) ? -errno : 0;
	if (fclose(p.f) != 0 && !err)
		err = -errno;
	return err;
}
