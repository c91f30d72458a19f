/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of whole studies, to the printed digits: tests/data/optical/tables.csv
 * has means over seeds 1-5 with 10 iterations each on NSFNET.
 *
 * - plain, beyond: requests of 2 slots, 150 Erlang in the background
 * - quiet: 2 slots, none
 * - loaded: 4 slots, 250 Erlang
 * - overloaded: 8 slots, 250 Erlang
 *
 * An argument restricts the test to one table. */
#include "sanitized.h"
#include "test.h"

#include <longhaul/experimental/optical.h>

#include <stdlib.h>
#include <time.h>

static const char policies[] =
    "  sd-ff: {}\n"
    "  ksp-ff: {}\n"
    "  cba: {}\n"
    "  cba-ladder: {policy: cba, ladder: true}\n"
    "  ksp16-ladder: {policy: ksp-ff, request_slots: 16, ladder: true}\n"
    "  ksp16-ladder-late: {policy: ksp-ff, request_slots: 16, ladder: true,"
    " ask_late: true}\n"
    "  slack-late: {policy: slack, ask_late: true}\n"
    "  slack-late-order: {policy: slack, ask_late: true, stage_order: true}\n"
    "  slack-late-order-deep: {policy: slack, ask_late: true,"
    " stage_order: true, warm_up_factor: 2}\n"
    "  ksp-late: {policy: ksp-ff, ask_late: true}\n"
    "  ksp-order: {policy: ksp-ff, stage_order: true}\n";

/* A row of the table. */
typedef struct row {
    char table[16], model[8], order[8], policy[32];
    char want[5][16]; /* iteration, deviation, bubble, blocking, slots */
    int microbatches;
} row;

enum { ROOM = 512 };

/* Reads a line's next field, at most `room` - 1 characters. */
static void next_field(const char **line, char *out, size_t room)
{
    size_t len = strcspn(*line, ",\n"), n = len < room ? len : room - 1;
    memcpy(out, *line, n);
    out[n] = '\0';
    *line += len + ((*line)[len] != '\0');
}

static int read_rows(row *rows)
{
    FILE *file = fopen(TEST_DATA "/optical/tables.csv", "r");
    char line[256], number[8];
    int n = 0;
    CHECK(file != NULL);
    while (file && n < ROOM && fgets(line, sizeof line, file)) {
        const char *p = line;
        row *r = &rows[n];
        if (*line == '#')
            continue;
        next_field(&p, r->table, sizeof r->table);
        next_field(&p, r->model, sizeof r->model);
        next_field(&p, r->order, sizeof r->order);
        next_field(&p, number, sizeof number);
        r->microbatches = atoi(number);
        next_field(&p, r->policy, sizeof r->policy);
        for (int i = 0; i < 5; i++)
            next_field(&p, r->want[i], sizeof r->want[i]);
        n++;
    }
    if (file)
        fclose(file);
    return n;
}

static bool same_case(const row *a, const row *b)
{
    return strcmp(a->table, b->table) == 0 && strcmp(a->model, b->model) == 0 &&
           strcmp(a->order, b->order) == 0 &&
           a->microbatches == b->microbatches;
}

/* Returns the lines of the policies named in one case's rows. */
static void pick(const row *rows, int n, int first, char *out)
{
    *out = '\0';
    for (const char *line = policies; *line; line = strchr(line, '\n') + 1) {
        size_t name = (size_t)(strchr(line, ':') - line) - 2;
        for (int i = first; i < n; i++)
            if (same_case(&rows[i], &rows[first]) &&
                strlen(rows[i].policy) == name &&
                memcmp(rows[i].policy, line + 2, name) == 0)
                strncat(out, line, (size_t)(strchr(line, '\n') - line) + 1);
    }
}

static void check_number(const row *r, int which, double got, int digits)
{
    char text[32];
    if (!*r->want[which])
        return;
    snprintf(text, sizeof text, "%.*f", digits, got);
    CHECK_MSG(strcmp(text, r->want[which]) == 0,
              "table %s, %s %s, %d micro-batches, %s: number %d is %s, not "
              "%s",
              r->table, r->model, r->order, r->microbatches, r->policy, which,
              text, r->want[which]);
}

static void check_case(const row *rows, int n, int first)
{
    char text[4096], lines[2048];
    const row *r = &rows[first];
    bool loaded = strcmp(r->table, "loaded") == 0;
    bool overloaded = strcmp(r->table, "overloaded") == 0;
    bool quiet = strcmp(r->table, "quiet") == 0;
    int load = quiet ? 0 : loaded || overloaded ? 250 : 150;
    int slots = loaded ? 4 : overloaded ? 8 : 2;
    pick(rows, n, first, lines);
    snprintf(text, sizeof text,
             "longhaul: optical/1\n"
             "topology: ../../../data/topologies/nsfnet.yaml\n"
             "job: {preset: %s, stages: 8, datacenters: 6, schedule: %s,"
             " microbatches: %d}\n"
             "background: {erlang: %d, holding_s: 1}\n"
             "request_slots: %d\n"
             "policies:\n%s",
             r->model, r->order, r->microbatches, load, slots, lines);
    lh_scenario *scenario = NULL;
    lh_optical *result = NULL;
    lh_error err = {0};
    CHECK_OK(lh_scenario_parse(text, strlen(text),
                               TEST_DATA "/optical/table.yaml", &scenario,
                               &err),
             err);
    if (scenario)
        CHECK_OK(lh_optical_run_all(scenario, NULL, &result, &err), err);
    for (int i = first; result && i < n; i++) {
        if (!same_case(&rows[i], r))
            continue;
        uint32_t p = 0;
        while (p < result->n_policies &&
               strcmp(result->policies[p].name, rows[i].policy) != 0)
            p++;
        CHECK(p < result->n_policies);
        if (p == result->n_policies)
            continue;
        const lh_optical_policy *got = &result->policies[p];
        check_number(&rows[i], 0, got->iteration_s, 3);
        check_number(&rows[i], 1, got->iteration_s_sd, 3);
        check_number(&rows[i], 2, 100 * got->bubble_ratio, 1);
        check_number(&rows[i], 3, 100 * got->blocking_probability,
                     strcmp(rows[i].table, "quiet") == 0 ? 1 : 2);
        check_number(&rows[i], 4, got->slots_held, 0);
    }
    lh_optical_free(result);
    lh_scenario_free(scenario);
}

static row rows[ROOM];
static const char *only;

static void tables(void)
{
    int n = read_rows(rows), n_cases = 0;
    CHECK_INT(n, 240);
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= same_case(&rows[k], &rows[i]);
        if (seen || (only && strcmp(only, rows[i].table) != 0))
            continue;
        /* Some cases of each table. */
        if (only || !FEW_CASES || n_cases % 5 == 0)
            check_case(rows, n, i);
        n_cases++;
    }
}

int main(int argc, char **argv)
{
    struct timespec a, b;
    only = argc > 1 ? argv[1] : NULL;
    timespec_get(&a, TIME_UTC);
    RUN(tables);
    timespec_get(&b, TIME_UTC);
    printf("%.2f s\n", (double)(b.tv_sec - a.tv_sec) +
                           (double)(b.tv_nsec - a.tv_nsec) / 1e9);
    return test_summary();
}
