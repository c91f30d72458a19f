/* SPDX-License-Identifier: Apache-2.0 */
/* Grids of scenarios: one scenario file with other values of some keys. */
#include "network/optical/scenario.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_AXES = 8,
    MAX_VALUES = 1000,
    MAX_CELLS = 10000,
};

/* The result with its memory. */
typedef struct grid {
    lhi_arena *mem;
    lh_optical_sweep sweep;
    lh_optical_axis axes[MAX_AXES];
    lh_scenario **scenarios; /* [n_cells] */
    lh_optical **cells;
} grid;

/* --- axes ----------------------------------------------------------------- */

/* Copies *text up to the character `end` or the text's end, without surrounding
 * blanks, into `mem`; moves *text behind it. Returns NULL on allocation
 * failure. */
static char *take_part(lhi_arena *mem, const char **text, const char *end)
{
    size_t len = strcspn(*text, end);
    const char *from = *text, *to = from + len;
    *text = *to ? to + 1 : to;
    while (from < to && *from == ' ')
        from++;
    while (to > from && to[-1] == ' ')
        to--;
    char *part = LHI_NEW(mem, char, (size_t)(to - from) + 1);
    if (part)
        memcpy(part, from, (size_t)(to - from));
    return part;
}

/* Parses one axis of a sweep (a scenario key with its values), KEY=VALUE,VALUE.
 * LH_EINPUT: it has another form. */
static lh_status read_axis(grid *g, const char *text, lh_optical_axis *out,
                           lh_error *err)
{
    const char *whole = text;
    uint32_t n = 1;
    for (const char *at = text; *at; at++)
        n += *at == ',';
    const char **values = LHI_NEW(g->mem, const char *, n);
    const char *key = take_part(g->mem, &text, "=");
    if (!values || !key)
        return lhi_fail_nomem(err);
    if (!*key || !strchr(whole, '='))
        return lhi_fail(err, LH_EINPUT,
                        "--sweep '%.80s': expected KEY=VALUE,VALUE, such as "
                        "background.erlang=0,150",
                        whole);
    if (n > MAX_VALUES)
        return lhi_fail(err, LH_EINPUT, "--sweep %.60s: more than %d values",
                        key, MAX_VALUES);
    for (uint32_t i = 0; i < n; i++) {
        values[i] = take_part(g->mem, &text, ",");
        if (!values[i])
            return lhi_fail_nomem(err);
        if (!*values[i])
            return lhi_fail(err, LH_EINPUT, "--sweep %.60s: a value is empty",
                            key);
    }
    *out = (lh_optical_axis){.key = key, .n_values = n, .values = values};
    return LH_OK;
}

/* Parses all axes of a sweep (scenario keys with their values), separated by
 * semicolons, and counts the cells: the combinations of values. */
static lh_status read_axes(grid *g, const char *text, lh_error *err)
{
    uint64_t n_cells = 1;
    lh_optical_sweep *s = &g->sweep;
    do {
        const char *part = take_part(g->mem, &text, ";");
        if (!part)
            return lhi_fail_nomem(err);
        if (s->n_axes == MAX_AXES)
            return lhi_fail(err, LH_EINPUT, "--sweep: more than %d keys",
                            MAX_AXES);
        lh_optical_axis *axis = &g->axes[s->n_axes];
        LHI_TRY(read_axis(g, part, axis, err));
        for (uint32_t i = 0; i < s->n_axes; i++)
            if (strcmp(g->axes[i].key, axis->key) == 0)
                return lhi_fail(err, LH_EINPUT,
                                "--sweep %.60s: the key is given twice",
                                axis->key);
        s->n_axes++;
        n_cells *= axis->n_values;
        if (n_cells > MAX_CELLS)
            return lhi_fail(err, LH_EINPUT,
                            "--sweep: more than %d combinations of values",
                            MAX_CELLS);
    } while (*text);
    s->axes = g->axes;
    s->n_cells = (uint32_t)n_cells;
    return LH_OK;
}

uint32_t lh_optical_sweep_value(const lh_optical_sweep *sweep, uint32_t cell,
                                uint32_t axis)
{
    for (uint32_t a = sweep->n_axes - 1; a > axis; a--)
        cell /= sweep->axes[a].n_values;
    return cell % sweep->axes[axis].n_values;
}

/* --- cells ---------------------------------------------------------------- */

/* Checks whether all cells have the same network: no axis sets one of its
 * keys. */
static bool has_one_network(const lh_optical_sweep *s)
{
    static const char *const keys[] = {
        "topology",   "slots",           "gbps_per_slot", "guard_slots",
        "modulation", "candidate_paths", "shared_fibre"};
    for (uint32_t a = 0; a < s->n_axes; a++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            size_t n = strlen(keys[i]);
            const char *key = s->axes[a].key;
            if (strncmp(key, keys[i], n) == 0 && (!key[n] || key[n] == '.'))
                return false;
        }
    return true;
}

/* Makes a cell use the network of the first one, whose candidate paths are then
 * computed once. */
static void borrow_network(lh_scenario *s, const lh_scenario *first)
{
    lhi_network_free(s->network);
    s->network = first->network;
    s->borrows_network = true;
}

/* Builds the scenario of one cell (combination of values): the scenario file's
 * text, with each axis's key set to the cell's value. */
static lh_status read_cell(grid *g, const char *path, const char *text,
                           size_t len, uint32_t cell, lh_error *err)
{
    const lh_optical_sweep *s = &g->sweep;
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, path, LHI_INPUT_SCENARIO, &doc, err));
    lh_status status = LH_OK;
    lhi_text values = {0};
    for (uint32_t a = 0; status == LH_OK && a < s->n_axes; a++) {
        const char *value =
            s->axes[a].values[lh_optical_sweep_value(s, cell, a)];
        status = lhi_node_set_value(doc, doc->root, s->axes[a].key, value, err);
        lhi_text_printf(&values, "%s%s=%s", a > 0 ? " " : "", s->axes[a].key,
                        value);
    }
    if (status == LH_OK)
        status = lhi_scenario_build(doc, &g->scenarios[cell], err);
    if (status == LH_OK && cell > 0 && has_one_network(s))
        borrow_network(g->scenarios[cell], g->scenarios[0]);
    if (status == LH_EINPUT)
        lhi_fail_add_context(err, "--sweep %.120s",
                             values.data ? values.data : "");
    lhi_text_fini(&values);
    lhi_doc_free(doc);
    return status;
}

/* Builds the scenarios of all cells (combinations of values) from the scenario
 * file's text and simulates them. */
static lh_status run_cells(grid *g, const char *path,
                           const lh_optical_options *options, lh_error *err)
{
    uint32_t n = g->sweep.n_cells;
    g->scenarios = LHI_NEW(g->mem, lh_scenario *, n);
    g->cells = LHI_NEW(g->mem, lh_optical *, n);
    if (!g->scenarios || !g->cells)
        return lhi_fail_nomem(err);
    char *text;
    size_t len;
    LHI_TRY(lhi_input_read(path, LHI_INPUT_SCENARIO, &text, &len, err));
    lh_status status = LH_OK;
    for (uint32_t i = 0; status == LH_OK && i < n; i++)
        status = read_cell(g, path, text, len, i, err);
    lh_text_free(text);
    LHI_TRY(status);
    LHI_TRY(lhi_optical_run_scenarios((const lh_scenario *const *)g->scenarios,
                                      n, options, g->cells, err));
    g->sweep.cells = (const lh_optical *const *)g->cells;
    return LH_OK;
}

lh_status lh_optical_sweep_run(const char *path, const char *axes,
                               const lh_optical_options *options,
                               lh_optical_sweep **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    grid *g = mem ? LHI_NEW(mem, grid, 1) : NULL;
    if (!g) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    g->mem = mem;
    lh_status status = read_axes(g, axes, err);
    if (status == LH_OK)
        status = run_cells(g, path, options, err);
    if (status == LH_OK)
        *out = &g->sweep;
    else
        lh_optical_sweep_free(&g->sweep);
    return status;
}

void lh_optical_sweep_free(lh_optical_sweep *sweep)
{
    if (!sweep)
        return;
    grid *g = (grid *)(void *)((char *)sweep - offsetof(grid, sweep));
    for (uint32_t i = 0; i < sweep->n_cells; i++) {
        if (g->cells)
            lh_optical_free(g->cells[i]);
        if (g->scenarios)
            lh_scenario_free(g->scenarios[i]);
    }
    lhi_arena_free(g->mem);
}

lh_optical_choice lh_optical_sweep_best(const lh_optical_sweep *sweep)
{
    lh_optical_choice best = {0};
    for (uint32_t c = 0; c < sweep->n_cells; c++)
        for (uint32_t k = 0; k < sweep->cells[c]->n_policies; k++)
            if (sweep->cells[c]->policies[k].iteration_s <
                sweep->cells[best.cell]->policies[best.policy].iteration_s) {
                best.cell = c;
                best.policy = k;
            }
    uint32_t step = sweep->n_cells;
    for (uint32_t a = 0; a < sweep->n_axes; a++) {
        uint32_t first = best.stepwise;
        step /= sweep->axes[a].n_values;
        for (uint32_t v = 1; v < sweep->axes[a].n_values; v++) {
            uint32_t c = first + v * step;
            if (sweep->cells[c]->policies[best.policy].iteration_s <
                sweep->cells[best.stepwise]->policies[best.policy].iteration_s)
                best.stepwise = c;
        }
    }
    return best;
}

const char *lh_optical_sweep_file(const lh_optical_sweep *sweep, uint32_t i)
{
    const grid *g = (const grid *)(const void *)((const char *)sweep -
                                                 offsetof(grid, sweep));
    for (uint32_t c = 0; c < sweep->n_cells; c++)
        for (const lhi_scenario_file *f = g->scenarios[c]->files; f;
             f = f->next)
            if (i-- == 0)
                return f->path;
    return NULL;
}

/* --- statistics and CSV --------------------------------------------------- */

double lh_optical_half_width(double sd, uint32_t n_runs)
{
    /* Student's t, 97.5 %, for 1 to 30 degrees of freedom. */
    static const double quantiles[] = {
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
        2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
        2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
    if (n_runs < 2)
        return 0;
    uint32_t freedom = n_runs - 1;
    /* Beyond the table: the expansion's first term in 1 / freedom. */
    const double z = 1.959964;
    double t = freedom <= sizeof quantiles / sizeof *quantiles
                   ? quantiles[freedom - 1]
                   : z + (z * z * z + z) / (4 * freedom);
    return t * sd / sqrt(freedom);
}

/* Adds a CSV field, quoted if it needs quotes. */
static void add_field(lhi_text *out, const char *text)
{
    if (!text[strcspn(text, ",\"\n")]) {
        lhi_text_puts(out, text);
        return;
    }
    lhi_text_puts(out, "\"");
    for (; *text; text++)
        lhi_text_printf(out, *text == '"' ? "\"\"" : "%c", *text);
    lhi_text_puts(out, "\"");
}

/* Adds two CSV fields: a mean, and half the width of its 95 % confidence
 * interval from standard deviation `sd` over n_runs seeds. */
static void add_mean(lhi_text *out, double mean, double sd, uint32_t n_runs)
{
    lhi_text_printf(out, ",%.9g,%.9g", mean, lh_optical_half_width(sd, n_runs));
}

lh_status lh_optical_sweep_csv(const lh_optical_sweep *sweep, char **text,
                               size_t *len, lh_error *err)
{
    lhi_text out = {0};
    for (uint32_t a = 0; a < sweep->n_axes; a++) {
        add_field(&out, sweep->axes[a].key);
        lhi_text_puts(&out, ",");
    }
    lhi_text_puts(&out, "policy,seeds,iteration_s,iteration_s_ci95,"
                        "bubble_ratio,bubble_ratio_ci95,blocking_probability,"
                        "blocking_probability_ci95,slots_held,collateral,"
                        "lower_bound_s,lost_s\n");
    for (uint32_t c = 0; c < sweep->n_cells; c++)
        for (uint32_t k = 0; k < sweep->cells[c]->n_policies; k++) {
            const lh_optical_policy *p = &sweep->cells[c]->policies[k];
            for (uint32_t a = 0; a < sweep->n_axes; a++) {
                add_field(
                    &out,
                    sweep->axes[a].values[lh_optical_sweep_value(sweep, c, a)]);
                lhi_text_puts(&out, ",");
            }
            add_field(&out, p->name);
            lhi_text_printf(&out, ",%" PRIu32, p->n_runs);
            add_mean(&out, p->iteration_s, p->iteration_s_sd, p->n_runs);
            add_mean(&out, p->bubble_ratio, p->bubble_ratio_sd, p->n_runs);
            add_mean(&out, p->blocking_probability, p->blocking_probability_sd,
                     p->n_runs);
            lhi_text_printf(&out, ",%.9g,%.9g,%.9g,%.9g\n", p->slots_held,
                            p->collateral, p->bound_s, p->lost_s);
        }
    lh_status status = lhi_text_take(&out, text, len, err);
    lhi_text_fini(&out);
    return status;
}
