/* SPDX-License-Identifier: Apache-2.0 */
/* Prints docs/papers/cba.md's tables beside its claims. */
#include "cba.h"

#include <math.h>
#include <string.h>

static void print_cell(const lh_optical_policy *p, FILE *to)
{
    fprintf(to, " %.3f (%.3f) / %.1f / %.2f |", p->iteration_s,
            p->iteration_s_sd, 100 * p->bubble_ratio,
            100 * p->blocking_probability);
}

static void count_cell(cba_tally *t, const lh_optical_policy *p)
{
    t->cells++;
    for (int i = 0; i < CBA_PLAIN; i++) {
        t->blocked[i] +=
            p[CBA_PLAIN].blocking_probability < p[i].blocking_probability;
        t->faster[i] += p[CBA_PLAIN].iteration_s < p[i].iteration_s;
        t->busier[i] += p[CBA_PLAIN].bubble_ratio < p[i].bubble_ratio;
    }
}

static void print_tally(const cba_tally *t, FILE *to)
{
    fprintf(to,
            "\nOf %d rows, CBA has a shorter iteration than SD-FF in %d and "
            "than KSP-FF in %d, and a smaller bubble\nthan SD-FF in %d and "
            "than KSP-FF in %d; CBA is blocked less than SD-FF in %d and less "
            "than KSP-FF\nin %d.\n",
            t->cells, t->faster[0], t->faster[1], t->busier[0], t->busier[1],
            t->blocked[0], t->blocked[1]);
}

void cba_figure(FILE *to, const page_options *how)
{
    cba_tally t = {.cells = 0};

    fputs("| panels | model, schedule | microbatches | SD-FF | KSP-FF | CBA | "
          "CBA, ladder |\n| --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int p = 0; p < CBA_PANELS; p++)
        for (int i = 0; i < (how->quick ? 1 : CBA_COUNTS); i++) {
            cba_case c = cba_panels[p];

            c.microbatches = cba_counts[i];
            lh_optical *o = cba_compare(&c, how->folder);
            fprintf(to, "| %c, %c | %s | %d |", 'a' + p, 'e' + p, cba_title(&c),
                    c.microbatches);
            for (int k = 0; k < CBA_POLICIES; k++)
                print_cell(&o->policies[k], to);
            fputc('\n', to);
            count_cell(&t, o->policies);
            lh_optical_free(o);
        }
    if (!how->quick)
        print_tally(&t, to);
}

/* Prints a table of policies in one setting, over the panels with 16
 * microbatches; nothing with --quick. */
static void print_rules(FILE *to, const char *policies, int erlang, int slots,
                        const page_options *how)
{
    lh_optical *o[CBA_PANELS];

    if (how->quick)
        return;
    fputs("| rule |", to);
    for (int p = 0; p < CBA_PANELS; p++) {
        cba_case c = cba_panels[p];

        c.microbatches = 16;
        c.erlang = erlang;
        c.slots = slots;
        o[p] = cba_simulate(&c, how->folder, policies);
        fprintf(to, " %s |", cba_title(&c));
    }
    fputs("\n| --- | --- | --- | --- | --- |\n", to);
    for (uint32_t k = 0; k < o[0]->n_policies; k++) {
        fprintf(to, "| %s |", o[0]->policies[k].name);
        for (int p = 0; p < CBA_PANELS; p++)
            fprintf(to, " %.3f / %.2f |", o[p]->policies[k].iteration_s,
                    100 * o[p]->policies[k].blocking_probability);
        fputc('\n', to);
    }
    for (int p = 0; p < CBA_PANELS; p++)
        lh_optical_free(o[p]);
}

/* --- settings ------------------------------------------------------------- */

/* The largest decrease so far, and where. */
typedef struct maximum {
    double gain;
    cba_case at;
} maximum;

static void raise(maximum *m, double gain, const cba_case *c)
{
    if (gain > m->gain)
        *m = (maximum){gain, *c};
}

/* Raises the maxima by time, bubble and blocking against a baseline. */
static void compare(const lh_optical *o, cba_policy base, const cba_case *c,
                    maximum m[3])
{
    const lh_optical_policy *a = &o->policies[CBA_PLAIN];
    const lh_optical_policy *b = &o->policies[base];

    raise(&m[0], 100 * (1 - a->iteration_s / b->iteration_s), c);
    raise(&m[1], 100 * (b->bubble_ratio - a->bubble_ratio), c);
    raise(&m[2], 100 * (b->blocking_probability - a->blocking_probability), c);
}

void cba_maxima(FILE *to, const page_options *how)
{
    static const int settings[][2] = {{0, 2}, {150, 2}, {250, 4}, {250, 8}};
    static const char *const names[] = {"SD-FF", "KSP-FF"};

    fputs("| Erlang | slots | against | iteration, % | bubble, points | "
          "blocking, points |\n| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (size_t i = 0; i < sizeof settings / sizeof *settings && !how->quick;
         i++) {
        maximum m[2][3];

        for (int b = 0; b < 2; b++)
            for (int k = 0; k < 3; k++)
                m[b][k] = (maximum){-INFINITY, cba_panels[0]};
        for (int p = 0; p < CBA_PANELS; p++)
            for (int n = 0; n < CBA_COUNTS; n += 2) {
                cba_case c = cba_panels[p];

                c.microbatches = cba_counts[n];
                c.erlang = settings[i][0];
                c.slots = settings[i][1];
                lh_optical *o = cba_compare(&c, how->folder);
                for (int b = 0; b < 2; b++)
                    compare(o, (cba_policy)b, &c, m[b]);
                lh_optical_free(o);
            }
        for (int b = 0; b < 2; b++) {
            fprintf(to, "| %d | %d | %s |", settings[i][0], settings[i][1],
                    names[b]);
            for (int k = 0; k < 3; k++)
                fprintf(to, " %.2f (%s, %d) |", m[b][k].gain,
                        cba_title(&m[b][k].at), m[b][k].at.microbatches);
            fputc('\n', to);
        }
    }
}

/* Background loads and slots per request. */
enum { GRID = 4 };
static const int grid_loads[GRID] = {100, 150, 250, 400};
static const int grid_slots[GRID] = {1, 2, 4, 8};

/* Simulates a setting of the grid; release with lh_optical_free(). */
static lh_optical *grid_setting(int load, int slots, const char *folder)
{
    cba_case c = cba_panels[0];

    c.microbatches = 16;
    c.erlang = load;
    c.slots = slots;
    return cba_compare(&c, folder);
}

cba_tally cba_count_grid(const char *folder)
{
    cba_tally t = {.cells = 0};

    for (int i = 0; i < GRID * GRID; i++) {
        lh_optical *o =
            grid_setting(grid_loads[i / GRID], grid_slots[i % GRID], folder);

        count_cell(&t, o->policies);
        lh_optical_free(o);
    }
    return t;
}

void cba_grid(FILE *to, const page_options *how)
{
    cba_tally t = {.cells = 0};

    fputs("| Erlang | slots | SD-FF | KSP-FF | CBA |\n"
          "| --- | --- | --- | --- | --- |\n",
          to);
    for (int i = 0; i < (how->quick ? GRID : GRID * GRID); i++) {
        int load = grid_loads[i / GRID], slots = grid_slots[i % GRID];
        lh_optical *o = grid_setting(load, slots, how->folder);

        fprintf(to, "| %d | %d |", load, slots);
        for (int k = 0; k <= CBA_PLAIN; k++)
            fprintf(to, " %.3f / %.2f |", o->policies[k].iteration_s,
                    100 * o->policies[k].blocking_probability);
        fputc('\n', to);
        count_cell(&t, o->policies);
        lh_optical_free(o);
    }
    if (!how->quick)
        print_tally(&t, to);
}

/* With 8 slots and 250 Erlang: CBA without smaller requests after refusals, and
 * without larger requests for labelled messages. */
void cba_refusals(FILE *to, const page_options *how)
{
    static const char policies[] =
        "  KSP-FF: {policy: ksp-ff}\n"
        "  CBA: {policy: cba}\n"
        "  \"refusal_factor: 1\": {policy: cba, refusal_factor: 1}\n"
        "  \"label_factor: 1\": {policy: cba, label_factor: 1}\n";

    print_rules(to, policies, 250, 8, how);
}

/* --- defeats and rules ---------------------------------------------------- */

void cba_defeats(FILE *to, const page_options *how)
{
    static const cba_case cases[] = {{"8b", "gpipe", 16, 0, 30},
                                     {"8b", "gpipe", 128, CBA_ERLANG, 2}};
    static const char policies[] =
        "  KSP-FF: {policy: ksp-ff}\n"
        "  CBA: {policy: cba}\n"
        "  KSP-FF, late requests: {policy: ksp-ff, ask_late: true}\n"
        "  CBA, late requests: {policy: cba, ask_late: true}\n";

    fputs("| Erlang | slots | microbatches | policy | iteration, s | blocked, "
          "% | slots held |\n| --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int i = 0; i < (how->quick ? 1 : 2); i++) {
        lh_optical *o = cba_simulate(&cases[i], how->folder, policies);

        for (uint32_t k = 0; k < o->n_policies; k++) {
            const lh_optical_policy *p = &o->policies[k];

            fprintf(to, "| %d | %d | %d | %s | %.3f | %.2f | %.0f |\n",
                    cases[i].erlang, cases[i].slots, cases[i].microbatches,
                    p->name, p->iteration_s, 100 * p->blocking_probability,
                    p->slots_held);
        }
        lh_optical_free(o);
    }
}

void cba_rules(FILE *to, const page_options *how)
{
    static const char policies[] =
        "  KSP-FF: {policy: ksp-ff}\n"
        "  CBA: {policy: cba}\n"
        "  \"label_factor: 1\": {policy: cba, label_factor: 1}\n"
        "  \"label_factor: 4\": {policy: cba, label_factor: 4}\n"
        "  \"refusal_factor: 1\": {policy: cba, refusal_factor: 1}\n"
        "  \"guard: 0\": {policy: cba, guard: 0}\n"
        "  \"guard: 0.05\": {policy: cba, guard: 0.05}\n"
        "  \"guard: 1\": {policy: cba, guard: 1}\n"
        "  \"contiguity: block\": {policy: cba, contiguity: block}\n"
        "  \"free_share: factor\": {policy: cba, free_share: factor}\n";

    print_rules(to, policies, CBA_ERLANG, CBA_SLOTS, how);
}
