/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of random jobs (choice_jobs.h) at default effort are stable: the plan's
 * own degrees given in the job lead to a plan that is as fast, and more
 * bandwidth or more memory to one that is not slower, within 0.2 %. The gaps to
 * the proven bounds are printed by job family.
 *
 *     test_plan_degrees [JOBS [SEED [SIZE [PAGE]]]]
 *
 * SIZE: quick, small or large. PAGE: a page whose part between two lines that
 * begin with "<!-- test_plan_degrees" receives the table of gaps. */
#include "choice_jobs.h"

#include "page_section.h"
#include "sanitized.h"

#include <inttypes.h>

enum { JOBS = FEW_CASES ? 1 : 3, SEED = 11, MOST_JOBS = 4096 };
static const double TOLERANCE = 0.002;

static uint32_t n_jobs = JOBS;
static uint64_t first_seed = SEED;
static job_size size = {16, 12, 32};
static const char *page;

/* Gaps of one job family. */
typedef struct family {
    uint32_t n;
    double gaps[MOST_JOBS];
} family;

static family families[2][MAX_DATACENTERS]; /* by experts and sites */

/* Results for one property. */
typedef struct tally {
    const char *name;
    uint32_t n, failed;
    double worst;
} tally;

static tally tallies[] = {{"own degrees", 0, 0, 0},
                          {"more bandwidth", 0, 0, 0},
                          {"more memory", 0, 0, 0}};

static lh_plan *plan_of(const job_parts *p)
{
    lh_job *job = job_make(p);
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_status status = job ? lh_plan_make(job, NULL, &plan, &err) : LH_EINPUT;
    CHECK_MSG(status == LH_OK || status == LH_EINFEASIBLE ||
                  status == LH_EUNSUPPORTED || status == LH_EINPUT ||
                  status == LH_EINVAL,
              "%s", err.text);
    lh_job_free(job);
    return plan;
}

/* Checks that the first plan's deviation from the second is acceptable. */
static void compare(uint64_t seed, tally *t, double deviation,
                    const job_parts *p)
{
    static char text[JOB_TEXT];
    t->n++;
    t->worst = fmax(t->worst, deviation);
    if (deviation <= TOLERANCE)
        return;
    t->failed++;
    CHECK_MSG(false, "seed %" PRIu64 ": %s: %.2f %%", seed, t->name,
              100 * deviation);
    job_write(p, text);
    fprintf(stderr, "%s", text);
}

static double ratio(const lh_plan *a, const lh_plan *b)
{
    return (double)a->best.iteration_ns / (double)b->best.iteration_ns;
}

/* Gives the plan's own degrees. */
static void give_degrees(uint64_t seed, const job_parts *p, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    const struct {
        const char *key;
        uint32_t value;
    } degrees[] = {{"tensor", l->tensor}, {"context", l->context},
                   {"expert", l->expert}, {"pipeline", l->pipeline},
                   {"data", l->data},     {"micro_batch", l->micro_batch}};
    job_parts given = *p;
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        char value[16];
        snprintf(value, sizeof value, "%" PRIu32, degrees[i].value);
        if (p->experts || strcmp(degrees[i].key, "expert") != 0)
            job_give(&given, "layout", degrees[i].key, value);
    }
    lh_plan *fixed = plan_of(&given);
    CHECK_MSG(fixed, "seed %" PRIu64 ": no plan with its own degrees", seed);
    if (fixed)
        compare(seed, &tallies[0], fabs(ratio(fixed, plan) - 1), &given);
    lh_plan_free(fixed);
}

static void give_more(uint64_t seed, const job_parts *p, const lh_plan *plan)
{
    job_parts more = *p;
    more.gbps *= 2;
    lh_plan *wider = p->n_sites > 1 ? plan_of(&more) : NULL;
    if (wider)
        compare(seed, &tallies[1], ratio(wider, plan) - 1, &more);
    more = *p;
    for (uint32_t i = 0; i < p->n_sites; i++)
        more.sites[i].memory_gib *= 1.5;
    lh_plan *larger = plan_of(&more);
    if (larger)
        compare(seed, &tallies[2], ratio(larger, plan) - 1, &more);
    lh_plan_free(wider);
    lh_plan_free(larger);
}

static void check_job(uint64_t seed)
{
    lhi_random r = {seed};
    const job_parts p = draw_job(&r, &size);
    lh_plan *plan = plan_of(&p);
    if (!plan)
        return;
    family *f = &families[p.experts][p.n_sites];
    const double gap = lh_plan_gap(plan);
    if (gap >= 0 && f->n < MOST_JOBS)
        f->gaps[f->n++] = gap;
    give_degrees(seed, &p, plan);
    give_more(seed, &p, plan);
    lh_plan_free(plan);
}

static int compare_gaps(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Writes the table of gaps. */
static void write_table(char *out, size_t room)
{
    size_t len = (size_t)snprintf(
        out, room,
        "| model | sites | jobs | median gap | 90 %% | largest |\n"
        "| --- | --- | --- | --- | --- | --- |\n");
    for (int experts = 0; experts < 2; experts++)
        for (uint32_t sites = 1; sites < MAX_DATACENTERS; sites++) {
            family *f = &families[experts][sites];
            if (f->n == 0)
                continue;
            qsort(f->gaps, f->n, sizeof *f->gaps, compare_gaps);
            len += (size_t)snprintf(out + len, room - len,
                                    "| %s | %" PRIu32 " | %" PRIu32
                                    " | %.1f %% | %.1f %% | %.1f %% |\n",
                                    experts ? "experts" : "dense", sites, f->n,
                                    100 * f->gaps[f->n / 2],
                                    100 * f->gaps[f->n * 9 / 10],
                                    100 * f->gaps[f->n - 1]);
        }
}

static void plans_are_stable(void)
{
    static char table[4096];
    for (uint64_t i = 0; i < n_jobs; i++)
        check_job(first_seed + i);
    for (size_t i = 0; i < sizeof tallies / sizeof *tallies; i++)
        printf("%-15s %5" PRIu32 " compared, %3" PRIu32
               " beyond 0.2 %%, %.2f %% at most\n",
               tallies[i].name, tallies[i].n, tallies[i].failed,
               100 * tallies[i].worst);
    CHECK(tallies[0].n > 0);
    write_table(table, sizeof table);
    printf("%s", table);
    if (page)
        CHECK(page_part("test_plan_degrees", page, true, 0, table));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_jobs = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    if (argc > 3 && strcmp(argv[3], "small") == 0)
        size = (job_size){64, 40, 128};
    if (argc > 3 && strcmp(argv[3], "large") == 0)
        size = (job_size){256, 40, 256};
    if (argc > 4)
        page = argv[4];
    RUN(plans_are_stable);
    return test_summary();
}
