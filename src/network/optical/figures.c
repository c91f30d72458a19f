/* SPDX-License-Identifier: Apache-2.0 */
#include "network/optical/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void lhi_html_text(lhi_text *out, const char *text)
{
    for (; *text; text++) {
        const char *named = *text == '&'   ? "&amp;"
                            : *text == '<' ? "&lt;"
                            : *text == '>' ? "&gt;"
                            : *text == '"' ? "&quot;"
                                           : NULL;
        if (named)
            lhi_text_puts(out, named);
        else
            lhi_text_add(out, text, 1);
    }
}

/* Page files embedded by tools/embed.py: optical.html, and the report's style
 * with optical.css. */
extern const char lhi_optical_page_html[];
extern const char lhi_optical_page_css[];

void lhi_html_page(lhi_text *out, const lhi_text *title, const lhi_text *facts,
                   const lhi_text *body)
{
    const struct {
        const char *mark, *text;
        size_t len;
    } parts[] = {
        {"@TITLE@", title->data, title->len},
        {"@CSS@", lhi_optical_page_css, strlen(lhi_optical_page_css)},
        {"@TITLE@", title->data, title->len},
        {"@FACTS@", facts->data, facts->len},
        {"@BODY@", body->data, body->len},
        {"@VERSION@", LONGHAUL_VERSION, strlen(LONGHAUL_VERSION)},
    };
    const char *page = lhi_optical_page_html;
    out->failed |= title->failed || facts->failed || body->failed;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(page, parts[i].mark);
        lhi_text_add(out, page, (size_t)(at - page));
        lhi_text_add(out, parts[i].text, parts[i].len);
        page = at + strlen(parts[i].mark);
    }
    lhi_text_puts(out, page);
}

double lhi_figure_round_up(double x)
{
    double unit = pow(10, floor(log10(x)));
    double factor = x / unit;
    return unit * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

/* --- layout --------------------------------------------------------------- */

/* Runs one step of stress majorisation on the node positions x, y with
 * distances `metres` and weights 1/d^2 (Gansner, Koren, North, "Graph drawing
 * by stress majorization", 2004), node by node. */
static void relax_positions(uint32_t n, const int64_t *metres, double *x,
                            double *y)
{
    for (uint32_t i = 0; i < n; i++) {
        double sx = 0, sy = 0, weights = 0;
        for (uint32_t j = 0; j < n; j++) {
            if (i == j)
                continue;
            double want = (double)metres[(size_t)i * n + j] / LHI_M_PER_KM;
            double dx = x[i] - x[j], dy = y[i] - y[j];
            double is = sqrt(dx * dx + dy * dy), weight = 1 / (want * want);
            double stretch = is > 1e-9 ? want / is : 0;
            sx += weight * (x[j] + dx * stretch);
            sy += weight * (y[j] + dy * stretch);
            weights += weight;
        }
        x[i] = sx / weights;
        y[i] = sy / weights;
    }
}

/* Scales coordinates to the interval from 0 to 1; equal coordinates become 0.5.
 */
static void fit_square(uint32_t n, double *x)
{
    double low = x[0], high = x[0];
    for (uint32_t i = 1; i < n; i++) {
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        x[i] = high > low ? (x[i] - low) / (high - low) : 0.5;
}

lh_status lhi_figure_layout(const lh_topology *topology, double *x, double *y,
                            lh_error *err)
{
    uint32_t n = topology->n_nodes;
    int64_t *metres = malloc((size_t)n * n * sizeof *metres);
    if (!metres)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        if (lhi_topology_distances(topology, i, metres + (size_t)i * n) !=
            LH_OK) {
            free(metres);
            return lhi_fail_nomem(err);
        }
        double turn = 6.283185307179586 * i / n;
        x[i] = 1000 * cos(turn);
        y[i] = 1000 * sin(turn);
    }
    for (int round = 0; round < 300; round++)
        relax_positions(n, metres, x, y);
    fit_square(n, x);
    fit_square(n, y);
    free(metres);
    return LH_OK;
}

/* --- topology ------------------------------------------------------------- */

enum { MAP_WIDTH = 700, MAP_HEIGHT = 400, MAP_EDGE = 30, MAP_ROOM = 90 };

/* Converts a layout x coordinate from 0 to 1 into pixels of the map. */
static double compute_map_x(double x)
{
    return MAP_EDGE + x * (MAP_WIDTH - MAP_EDGE - MAP_ROOM);
}

/* Converts a layout y coordinate from 0 to 1 into pixels of the map. */
static double compute_map_y(double y)
{
    return MAP_EDGE + y * (MAP_HEIGHT - 2 * MAP_EDGE);
}

/* Computes use[cable], the slots that job 0 occupies on each cable, averaged
 * over the recorded iteration. */
static void compute_job_use(const lhi_network *n,
                            const lhi_iteration_record *rec, double *use)
{
    double span = (double)(rec->end_ns - rec->begin_ns);
    for (size_t i = 0; i < rec->n_circuits; i++) {
        const lhi_recorded_circuit *h = &rec->circuits[i];
        if (h->job != 0 || span <= 0)
            continue;
        for (uint32_t k = 0; k < h->path->hops; k++)
            use[lhi_network_get_cable(n, h->path->fibres[k])] +=
                h->slots * (double)(h->end_ns - h->start_ns) / span;
    }
}

/* Returns how many cables with a lower number connect the same two nodes as
 * cable `c`, so that parallel cables are drawn side by side. */
static uint32_t count_parallel(const lh_topology *t, uint32_t c)
{
    const lh_cable *x = &t->cables[c];
    uint32_t n = 0;
    for (uint32_t w = t->first_way[x->a]; w < t->first_way[x->a + 1]; w++)
        n += t->ways[w].cable < c && t->ways[w].node == x->b;
    return n;
}

/* Draws the topology's cables between the node positions x, y. `use`: spectrum
 * slots per cable that the first job occupies on average. */
static void draw_cables(lhi_text *out, const lh_topology *t, const double *x,
                        const double *y, const double *use)
{
    for (uint32_t c = 0; c < t->n_cables; c++) {
        const lh_cable *cable = &t->cables[c];
        double x1 = compute_map_x(x[cable->a]), y1 = compute_map_y(y[cable->a]);
        double x2 = compute_map_x(x[cable->b]), y2 = compute_map_y(y[cable->b]);
        /* Parallel cables are drawn 5 pixels apart. */
        double shift = 5.0 * count_parallel(t, c);
        y1 += shift;
        y2 += shift;
        lhi_text_printf(out,
                        "<line class=cable x1=%.1f y1=%.1f x2=%.1f "
                        "y2=%.1f><title>%" PRId64 " - %" PRId64 ": %.7g km; "
                        "%.2f slots held</title></line>",
                        x1, y1, x2, y2, t->ids[cable->a], t->ids[cable->b],
                        (double)cable->length_m / LHI_M_PER_KM, use[c]);
        if (use[c] > 0)
            lhi_text_printf(out,
                            "<line class=route x1=%.1f y1=%.1f x2=%.1f "
                            "y2=%.1f stroke-width=%.1f />",
                            x1, y1, x2, y2, 1.5 + fmin(10, use[c]));
    }
}

/* Draws the topology's nodes at the positions x, y, with the job's stages at
 * their nodes. */
static void draw_nodes(lhi_text *out, const lh_topology *t,
                       const lhi_optical_run_job *job, const double *x,
                       const double *y)
{
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        bool used = false;
        double nx = compute_map_x(x[i]), ny = compute_map_y(y[i]);
        for (uint32_t d = 0; d < job->program->n_devices; d++)
            used |= job->sites[d] == i;
        lhi_text_printf(out,
                        "<circle class=\"node%s\" cx=%.1f cy=%.1f r=%d>"
                        "<title>",
                        used ? " site" : "", nx, ny, used ? 8 : 5);
        lhi_html_text(out, t->names[i]);
        lhi_text_printf(out,
                        "</title></circle><text x=%.1f y=%.1f "
                        "class=id>%" PRId64 "</text>",
                        nx + 9, ny - 7, t->ids[i]);
        if (!used)
            continue;
        lhi_text_printf(out, "<text x=%.1f y=%.1f class=stage>", nx + 9,
                        ny + 14);
        const char *mark = "stage ";
        for (uint32_t d = 0; d < job->program->n_devices; d++)
            if (job->sites[d] == i) {
                lhi_text_printf(out, "%s%" PRIu32, mark, d);
                mark = ",";
            }
        lhi_text_puts(out, "</text>");
    }
}

lh_status lhi_figure_topology(lhi_text *out, const lh_scenario *s,
                              const lhi_optical_run_job *job,
                              const lhi_iteration_record *rec, const double *x,
                              const double *y, lh_error *err)
{
    const lh_topology *t = s->topology;
    double *use = calloc(t->n_cables, sizeof *use);
    if (!use)
        return lhi_fail_nomem(err);
    compute_job_use(s->network, rec, use);
    lhi_text_printf(out, "<svg viewBox=\"0 0 %d %d\" class=map>", MAP_WIDTH,
                    MAP_HEIGHT);
    draw_cables(out, t, x, y, use);
    draw_nodes(out, t, job, x, y);
    lhi_text_puts(out, "</svg>");
    free(use);
    return LH_OK;
}

/* --- spectrum over time --------------------------------------------------- */

enum { BINS = 120, LEVELS = 8, CELL = 7, ROW = 9, LEFT = 70, TOP = 16 };

/* Adds circuit `h`'s spectrum slots to one fibre's heat-map row, `cells`: BINS
 * cells of equal time. A cell that the circuit covers partly receives a part of
 * the slots. */
static void add_circuit(const lhi_iteration_record *rec,
                        const lhi_recorded_circuit *h, double *cells)
{
    double span = (double)(rec->end_ns - rec->begin_ns);
    double from = (double)(h->start_ns - rec->begin_ns) / span * BINS;
    double to = (double)(h->end_ns - rec->begin_ns) / span * BINS;
    from = fmax(from, 0);
    to = fmin(to, BINS);
    for (int b = (int)from; b < BINS && b < to; b++)
        cells[b] += h->slots * fmax(0, fmin(to, b + 1) - fmax(from, b));
}

/* Draws the cells of a heat map (fibres x time), one SVG path per level of
 * occupancy relative to `slots`, a fibre's slots. `class`: CSS class. */
static void draw_cells(lhi_text *out, const double *cells, uint32_t fibres,
                       uint32_t slots, const char *class)
{
    for (int level = 1; level <= LEVELS; level++) {
        bool any = false;
        for (uint32_t f = 0; f < fibres; f++)
            for (int b = 0; b < BINS; b++) {
                double share = cells[(size_t)f * BINS + (size_t)b] / slots;
                if ((int)ceil(share * LEVELS - 1e-9) != level)
                    continue;
                if (!any)
                    lhi_text_printf(out,
                                    "<path class=%s fill-opacity=%.2f d=\"",
                                    class, (double)level / LEVELS);
                any = true;
                lhi_text_printf(out, "M%d %" PRIu32 "h%dv%dh-%dz",
                                LEFT + b * CELL, TOP + f * ROW, CELL, ROW - 1,
                                CELL);
            }
        if (any)
            lhi_text_puts(out, "\"/>");
    }
}

/* Adds a heat map's row labels: the fibres' nodes. */
static void label_fibres(lhi_text *out, const lhi_network *n)
{
    const lh_topology *t = n->topology;
    for (uint32_t f = 0; f < lhi_network_n_fibres(n); f++) {
        const lh_cable *c = &t->cables[lhi_network_get_cable(n, f)];
        bool back = !n->shared_fibre && f % 2 == 1;
        lhi_text_printf(
            out,
            "<text class=id x=%d y=%" PRIu32 " text-anchor=end>%" PRId64
            "%s%" PRId64 "</text>",
            LEFT - 4, TOP + f * ROW + ROW - 2, t->ids[back ? c->b : c->a],
            n->shared_fibre ? "-" : "\xe2\x86\x92", t->ids[back ? c->a : c->b]);
    }
}

/* Adds an iteration's time axis, in seconds, at y coordinate `height`. */
static void label_time(lhi_text *out, const lhi_iteration_record *rec,
                       uint32_t height)
{
    double span = (double)(rec->end_ns - rec->begin_ns) / 1e9;
    for (int i = 0; i <= 4; i++)
        lhi_text_printf(out,
                        "<text class=id x=%d y=%" PRIu32
                        " text-anchor=%s>%.3f s</text>",
                        LEFT + i * BINS * CELL / 4, height,
                        i == 0   ? "start"
                        : i == 4 ? "end"
                                 : "middle",
                        span * i / 4);
}

lh_status lhi_figure_spectrum(lhi_text *out, const lh_scenario *s,
                              const lhi_iteration_record *rec, lh_error *err)
{
    const lhi_network *n = s->network;
    uint32_t fibres = lhi_network_n_fibres(n);
    double *others = calloc((size_t)fibres * BINS, sizeof *others);
    double *jobs = calloc((size_t)fibres * BINS, sizeof *jobs);
    if (!others || !jobs) {
        free(others);
        free(jobs);
        return lhi_fail_nomem(err);
    }
    if (rec->end_ns > rec->begin_ns)
        for (size_t i = 0; i < rec->n_circuits; i++) {
            const lhi_recorded_circuit *h = &rec->circuits[i];
            double *to = h->job == LH_NONE ? others : jobs;
            for (uint32_t k = 0; k < h->path->hops; k++)
                add_circuit(rec, h,
                            to + (size_t)h->path->fibres[k] * (size_t)BINS);
        }
    uint32_t height = TOP + fibres * ROW + 4;
    lhi_text_printf(out, "<svg viewBox=\"0 0 %d %" PRIu32 "\" class=wide>",
                    LEFT + BINS * CELL + 4, height);
    draw_cells(out, others, fibres, n->slots, "others");
    draw_cells(out, jobs, fibres, n->slots, "jobs");
    label_fibres(out, n);
    label_time(out, rec, TOP - 5);
    lhi_text_puts(out, "</svg>");
    free(others);
    free(jobs);
    return LH_OK;
}

/* --- one iteration -------------------------------------------------------- */

enum { LANE = 22, WIDTH = BINS * CELL };

/* Draws all `kind` passes (F, B, D or W) as one SVG path of CSS class `class`;
 * kind -1: outlines of the passes that waited for messages from the network. */
static void draw_passes(lhi_text *out, const lhi_program *p,
                        const lhi_iteration_record *rec, int kind,
                        const char *class)
{
    double scale = WIDTH / (double)(rec->end_ns - rec->begin_ns);
    bool any = false;
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        /* kind -1: outlines for passes delayed by the network. */
        if (kind < 0 ? !rec->is_bound[i] : p->tasks[i].pass.kind != kind)
            continue;
        if (!any)
            lhi_text_printf(out, "<path class=%s d=\"", class);
        any = true;
        double x = (double)(rec->start_ns[i] - rec->begin_ns) * scale;
        double w = (double)p->tasks[i].duration_ns * scale;
        lhi_text_printf(out, "M%.2f %" PRIu32 "h%.2fv%dh-%.2fz", LEFT + x,
                        TOP + p->tasks[i].device * LANE + (kind < 0 ? 1u : 3u),
                        w, kind < 0 ? LANE - 3 : LANE - 7, w);
    }
    if (any)
        lhi_text_puts(out, "\"/>");
}

void lhi_figure_timeline(lhi_text *out, const lh_scenario *s,
                         const lhi_optical_run_job *job,
                         const lhi_iteration_record *rec)
{
    const lhi_program *p = job->program;
    const lh_topology *t = s->topology;
    if (rec->end_ns <= rec->begin_ns)
        return;
    lhi_text_printf(out, "<svg viewBox=\"0 0 %d %" PRIu32 "\" class=wide>",
                    LEFT + WIDTH + 4, TOP + p->n_devices * LANE + 4);
    for (uint32_t d = 0; d < p->n_devices; d++)
        lhi_text_printf(out,
                        "<text class=id x=%d y=%" PRIu32
                        " text-anchor=end>%" PRIu32 " @ %" PRId64 "</text>",
                        LEFT - 4, TOP + d * LANE + 15, d,
                        t->ids[job->sites[d]]);
    draw_passes(out, p, rec, LH_F, "f");
    draw_passes(out, p, rec, LH_B, "b");
    draw_passes(out, p, rec, LH_D, "b");
    draw_passes(out, p, rec, LH_W, "w");
    draw_passes(out, p, rec, -1, "bound");
    label_time(out, rec, TOP - 5);
    lhi_text_puts(out, "</svg>");
}
