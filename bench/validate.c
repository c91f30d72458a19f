/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the cost model with measured runs.
 *
 *     validate [--json] [--rows] [--fit] [--swap] [--check] [--iterations N]
 *              [--job RUN] [FOLDER]
 *
 * FOLDER contains vtrain/ and sailor/ (default bench/data). Every second run is
 * held out: no constant was fitted to it.
 *
 * - --fit refits the constants to the other half and prints them.
 * - --swap exchanges the halves.
 * - --rows lists every run; --job prints the job file of one.
 * - --check fails in two cases. First, if a held-out mean error is not below
 *   the error that the data's authors report for their own predictor. Second,
 *   if the model's choices among the measured layouts are on average more than
 *   3 % slower than the fastest measured.
 *
 * docs/validation.md explains the numbers. */
#include "validate.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SETS = 7 };

/* Parsed command line. */
typedef struct arguments {
    bool json, rows, fit, swap, check;
    uint32_t iterations;
    const char *folder, *job;
} arguments;

/* Sets that share constants. Group 0 has the library's defaults. */
typedef struct group {
    const char *name;
    uint32_t n_sets, sets[3];
    uint32_t n_names;
    const char *names[8];
} group;

enum { ALL_REDUCE, MULTI, SINGLE, GH200, RTX, GH200_PLANNER, GH200_MODEL };

static const group groups[] = {
    {"links", 1, {ALL_REDUCE}, 1, {"node_efficiency"}},
    {"kernels",
     2,
     {MULTI, SINGLE},
     6,
     {"matmul_efficiency", "memory_efficiency", "kernel_ns", "layer_host_ns",
      "fabric_efficiency", "iteration_ns"}},
};
/* Sailor's clusters have their own constant: the fraction of the measured
 * GPU-to-GPU bandwidth that its jobs assign to the network. */
static const group gh200_group = {
    "clariden", 1, {GH200}, 1, {"fabric_efficiency"}};
static const group rtx_group = {"mit", 1, {RTX}, 1, {"wan_efficiency"}};

static bool load(const char *folder, dataset *sets)
{
    char vtrain[512], sailor[512];

    snprintf(vtrain, sizeof vtrain, "%s/vtrain", folder);
    snprintf(sailor, sizeof sailor, "%s/sailor", folder);
    return load_all_reduce(vtrain, &sets[ALL_REDUCE]) &&
           load_vtrain(vtrain, "ground_truth_multi.csv", "vtrain multi",
                       &sets[MULTI]) &&
           load_vtrain(vtrain, "ground_truth_single.csv", "vtrain single",
                       &sets[SINGLE]) &&
           load_sailor(sailor, "sailor clariden", "clariden", "",
                       &sets[GH200]) &&
           load_sailor(sailor, "sailor mit", "mit", "", &sets[RTX]) &&
           load_sailor(sailor, "clariden, planner's profiles", "clariden",
                       "planner_", &sets[GH200_PLANNER]) &&
           load_sailor(sailor, "clariden, no profiles", "clariden", NULL,
                       &sets[GH200_MODEL]);
}

static bool fit_group(const group *g, dataset *sets, uint32_t iterations,
                      lh_cost_constants *constants)
{
    const dataset *chosen[3];

    for (uint32_t i = 0; i < g->n_sets; i++)
        chosen[i] = &sets[g->sets[i]];
    return fit(chosen, g->n_sets, g->names, g->n_names, iterations, constants);
}

static json_t *constants_json(lh_cost_constants *c, const group *g,
                              json_t *into)
{
    for (uint32_t i = 0; i < g->n_names; i++)
        json_object_set_new(into, g->names[i],
                            json_real(*constant_by_name(c, g->names[i])));
    return into;
}

static void print_constants(lh_cost_constants *c, const group *g)
{
    for (uint32_t i = 0; i < g->n_names; i++)
        printf("  %-18s %.4g\n", g->names[i],
               *constant_by_name(c, g->names[i]));
}

static bool list_runs(const dataset *set, const lh_cost_constants *constants,
                      bool json, json_t *into)
{
    for (uint32_t i = 0; i < set->n_runs; i++) {
        const run *r = &set->runs[i];
        double seconds = 0, bytes = 0;

        if (!r->excluded && !predict(r, constants, &seconds, &bytes))
            return false;
        if (json) {
            json_array_append_new(
                into, json_pack("{s:s,s:f,s:f,s:b,s:s?,s:f,s:f}", "run",
                                r->name, "measured_s", r->measured_s,
                                "predicted_s", seconds, "held_out", r->held_out,
                                "excluded", r->excluded, "measured_bytes",
                                r->measured_bytes, "predicted_bytes", bytes));
            continue;
        }
        if (r->excluded) {
            printf("  x %10.4f  left out: %s  %s\n", r->measured_s, r->excluded,
                   r->name);
            continue;
        }
        printf("  %c %10.4f %10.4f %+6.1f%%", r->held_out ? 'h' : 'f',
               r->measured_s, seconds, 100 * (seconds / r->measured_s - 1));
        if (r->measured_bytes > 0)
            printf(" %6.1f GB of %6.1f", bytes / 1e9, r->measured_bytes / 1e9);
        printf("  %s\n", r->name);
    }
    return true;
}

/* Errors of the fitted and the held-out half. */
typedef struct halves {
    errors fitted, held, all;
} halves;

static bool measure(const dataset *set, const lh_cost_constants *constants,
                    halves *out)
{
    return measure_errors(set, FITTED, constants, &out->fitted) &&
           measure_errors(set, HELD_OUT, constants, &out->held) &&
           measure_errors(set, ALL, constants, &out->all);
}

static void print_halves(const char *name, const halves *h)
{
    printf("%-28s %4u %6.1f%% %6.1f%%   %4u %6.1f%% %6.1f%%", name, h->fitted.n,
           100 * h->fitted.mean, 100 * h->fitted.worst, h->held.n,
           100 * h->held.mean, 100 * h->held.worst);
    if (h->all.n_bytes)
        printf("   %3u %6.1f%%", h->all.n_bytes, 100 * h->all.mean_bytes);
    putchar('\n');
}

static json_t *halves_json(const halves *h, const char *about, json_t *runs)
{
    return json_pack(
        "{s:s,s:i,s:f,s:f,s:s,s:i,s:f,s:f,s:s,s:i,s:f,s:o}", "about", about,
        "fitted_runs", (int)h->fitted.n, "fitted_mean", h->fitted.mean,
        "fitted_worst", h->fitted.worst, "fitted_worst_run",
        h->fitted.worst_name, "held_out_runs", (int)h->held.n, "held_out_mean",
        h->held.mean, "held_out_worst", h->held.worst, "held_out_worst_run",
        h->held.worst_name, "memory_runs", (int)h->all.n_bytes, "memory_mean",
        h->all.mean_bytes, "runs", runs);
}

static void print_choices(const char *name, const choices *c)
{
    printf("%-16s %6u %6u %7.1f%% %7.1f%% %8u %7.1f%% %7.1f%% %7.1f%%", name,
           c->n_groups, c->n_right, 100 * c->mean, 100 * c->worst, c->n_other,
           100 * c->practice, 100 * c->practice_worst, 100 * c->any);
    if (c->worst > 0)
        printf("  %s: %s", c->worst_group, c->worst_run);
    putchar('\n');
}

static json_t *choices_json(const choices *c)
{
    return json_pack(
        "{s:i,s:i,s:f,s:f,s:i,s:f,s:f,s:f,s:s,s:s}", "groups", (int)c->n_groups,
        "right", (int)c->n_right, "mean_slower", c->mean, "worst_slower",
        c->worst, "practice_other", (int)c->n_other, "practice_mean_slower",
        c->practice, "practice_worst_slower", c->practice_worst, "any_slower",
        c->any, "worst_group", c->worst_group, "worst_run", c->worst_run);
}

/* Reports the choices over all training runs of the sets counted once, each
 * under costs from its own layer times or, without them, from the estimate. */
static bool report_choices(const arguments *a, const dataset *sets,
                           const lh_cost_constants c[3], json_t *into,
                           choices *all)
{
    static const int counted[] = {MULTI, SINGLE, GH200, RTX};

    *all = (choices){0};
    if (!a->json)
        printf("\n%-16s %6s %6s %8s %8s %8s %8s %8s %8s\n", "chosen", "groups",
               "right", "slower", "worst", "practice", "slower", "worst",
               "any");
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        int k = counted[i];
        choices one;

        if (!measure_choices(&sets[k],
                             &c[k < GH200  ? 0
                                : k == RTX ? 2
                                           : 1],
                             &one))
            return false;
        if (!a->json)
            print_choices(sets[k].name, &one);
        json_object_set_new(into, sets[k].name, choices_json(&one));
        *all = add_choices(all, &one);
    }
    if (!a->json) {
        print_choices("all", all);
        putchar('\n');
    }
    json_object_set_new(into, "all", choices_json(all));
    return true;
}

static bool report(const arguments *a, const dataset *set,
                   const lh_cost_constants *constants, json_t *into,
                   halves *out)
{
    json_t *runs = json_array();

    if (!measure(set, constants, out))
        return false;
    if (!a->json)
        print_halves(set->name, out);
    if (a->rows && !list_runs(set, constants, a->json, runs))
        return false;
    json_object_set_new(into, set->name, halves_json(out, set->about, runs));
    return true;
}

/* Chooses constants for the library (0), clariden (1) and mit (2). */
static bool choose_constants(const arguments *a, dataset *sets,
                             lh_cost_constants c[3])
{
    c[0] = *lh_cost_defaults();
    if (a->fit)
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
            if (!fit_group(&groups[i], sets, a->iterations, &c[0]))
                return false;
    c[1] = c[2] = *lh_cost_defaults();
    return !a->fit || (fit_group(&gh200_group, sets, a->iterations, &c[1]) &&
                       fit_group(&rtx_group, sets, a->iterations, &c[2]));
}

static void print_all_constants(const arguments *a, lh_cost_constants c[3])
{
    printf("constants%s:\n", a->fit ? ", fitted now" : "");
    print_constants(&c[0], &groups[0]);
    print_constants(&c[0], &groups[1]);
    printf("for clariden:\n");
    print_constants(&c[1], &gh200_group);
    printf("for mit:\n");
    print_constants(&c[2], &rtx_group);
}

static bool is_below(const char *what, double mean, double published)
{
    if (mean < published)
        return true;
    fprintf(stderr, "validate: %s: mean of %.1f%%, not below %g%%\n", what,
            100 * mean, 100 * published);
    return false;
}

/* Checks against the errors published in arXiv:2312.12391 (vTrain) and
 * arXiv:2504.17096 (Sailor). */
static bool check(const halves *h, const halves *sailor, const choices *all)
{
    bool near = is_below("layouts chosen, slower than the fastest measured",
                         all->mean, 0.03);

    bool multi = is_below("vtrain multi, held out", h[MULTI].held.mean, 0.147);
    bool single =
        is_below("vtrain single, held out", h[SINGLE].held.mean, 0.084);

    return is_below("sailor, held out", sailor->held.mean, 0.09) && multi &&
           single && near;
}

static bool run_all(const arguments *a, dataset *sets)
{
    lh_cost_constants c[3];
    halves h[N_SETS], both;
    choices all;
    json_t *files, *root, *own, *chosen;
    bool ok = true;

    if (!choose_constants(a, sets, c))
        return false;
    files = json_object();
    if (!a->json)
        printf("%-28s %20s   %20s   %11s\n"
               "%-28s %4s %7s %7s   %4s %7s %7s   %3s %7s\n",
               "", "fitted half", "held-out half", "memory", "file", "runs",
               "mean", "worst", "runs", "mean", "worst", "all", "mean");
    for (uint32_t i = ALL_REDUCE; ok && i <= GH200_MODEL; i++) {
        const lh_cost_constants *use = &c[i < GH200 ? 0 : i == RTX ? 2 : 1];

        ok = report(a, &sets[i], use, files, &h[i]);
        if (ok && i == RTX) {
            both.fitted = add_errors(&h[GH200].fitted, &h[RTX].fitted);
            both.held = add_errors(&h[GH200].held, &h[RTX].held);
            both.all = add_errors(&h[GH200].all, &h[RTX].all);
            if (!a->json)
                print_halves("sailor, both", &both);
            json_object_set_new(
                files, "sailor",
                halves_json(&both, sets[RTX].about, json_array()));
        }
    }
    chosen = json_object();
    ok = ok && report_choices(a, sets, c, chosen, &all);
    own = constants_json(&c[0], &groups[0], json_object());
    root = json_pack(
        "{s:o,s:o,s:o,s:o,s:o}", "files", files, "choices", chosen, "constants",
        constants_json(&c[0], &groups[1], own), "clariden_constants",
        constants_json(&c[1], &gh200_group, json_object()), "mit_constants",
        constants_json(&c[2], &rtx_group, json_object()));
    if (ok && a->json) {
        json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
        putchar('\n');
    } else if (ok) {
        print_all_constants(a, c);
    }
    json_decref(root);
    if (ok && a->check)
        ok = check(h, &both, &all);
    return ok;
}

static bool print_job(const dataset *sets, const char *name)
{
    for (int i = 0; i < N_SETS; i++)
        for (uint32_t k = 0; k < sets[i].n_runs; k++)
            if (sets[i].runs[k].text && !strcmp(sets[i].runs[k].name, name)) {
                fputs(sets[i].runs[k].text, stdout);
                return true;
            }
    fprintf(stderr, "validate: no run '%s' has a job; --rows names them\n",
            name);
    return false;
}

int main(int argc, char **argv)
{
    arguments a = {.iterations = 300, .folder = "bench/data"};
    static dataset sets[N_SETS];
    bool ok;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            a.json = true;
        } else if (!strcmp(argv[i], "--rows")) {
            a.rows = true;
        } else if (!strcmp(argv[i], "--fit")) {
            a.fit = true;
        } else if (!strcmp(argv[i], "--check")) {
            a.check = true;
        } else if (!strcmp(argv[i], "--swap")) {
            a.swap = true;
        } else if (!strcmp(argv[i], "--iterations") && i + 1 < argc) {
            a.iterations = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--job") && i + 1 < argc) {
            a.job = argv[++i];
        } else if (argv[i][0] != '-') {
            a.folder = argv[i];
        } else {
            fprintf(stderr, "usage: validate [--json] [--rows] [--fit] "
                            "[--swap] [--check] [--iterations N] [--job RUN] "
                            "[FOLDER]\n");
            return 2;
        }
    }
    ok = load(a.folder, sets);
    for (int i = 0; a.swap && i < N_SETS; i++)
        for (uint32_t k = 0; k < sets[i].n_runs; k++)
            sets[i].runs[k].held_out = !sets[i].runs[k].held_out;
    if (ok && a.job)
        ok = print_job(sets, a.job);
    else
        ok = ok && run_all(&a, sets);
    for (int i = 0; i < N_SETS; i++)
        dataset_fini(&sets[i]);
    return ok ? 0 : 1;
}
