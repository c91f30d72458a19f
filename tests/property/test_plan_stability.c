/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of random jobs (choice_jobs.h) at default effort are stable within
 * 0.2 %: the plan's own degrees given in the job lead to a plan that is as
 * fast; those of its fastest alternative, to none that is faster, or slower
 * than listed. For every fourth job, more bandwidth or memory leads to none
 * that is slower. Prints the gaps to the proven bounds by job family, and the
 * differences. A plan with a time limit uses it.
 *
 *     test_plan_stability [JOBS [SEED [SIZE [PAGE]]]]
 *
 * SIZE: tiny, quick, small or large. PAGE: a page whose part between two lines
 * that begin with "<!-- test_plan_stability" receives the tables. After SIGINT
 * or SIGTERM the current job is the last one. */
#include "choice_jobs.h"

#include "page_section.h"
#include "sanitized.h"

#include <inttypes.h>
#include <signal.h>
#include <time.h>

enum {
    JOBS = FEW_CASES ? 1 : 3,
    SEED = 11,
    MOST_JOBS = 4096,
    MORE_EVERY = 4 /* jobs also planned with more resources, and others
                    * with less effort */
};
static const double TOLERANCE = 0.002;

static uint32_t n_jobs = JOBS;
static uint64_t first_seed = SEED;
static job_size size = {16, 12, 32};
static const char *page;
static volatile sig_atomic_t is_interrupted;

/* Gaps of one job family. */
typedef struct family {
    uint32_t n;
    double gaps[MOST_JOBS];
} family;

static family families[2][MAX_DATACENTERS]; /* by experts and sites */

/* Differences for one property: time of the job with given values, relative to
 * the open plan. */
typedef struct tally {
    const char *name;
    bool two_sided; /* faster is a failure, too */
    bool reversed;  /* only faster is a failure */
    uint32_t n, failed;
    double all[MOST_JOBS];
} tally;

enum {
    OWN_DEGREES,
    RUNNER_UP,
    RUNNER_UP_AS_LISTED,
    BANDWIDTH,
    MEMORY,
    EFFORT,
    N_TALLIES
};
static tally tallies[N_TALLIES] = {
    {.name = "own degrees", .two_sided = true},
    {.name = "runner-up's degrees", .reversed = true},
    {.name = "the same, relative to its listed time"},
    {.name = "twice the bandwidth"},
    {.name = "1.5 times the memory"},
    {.name = "more effort"}};

/* Plans a job with this effort; 0: default. */
static lh_plan *plan_with_effort(const job_parts *p, uint64_t effort)
{
    const lh_plan_options o = {.size = sizeof o, .effort = effort};
    lh_job *job = job_make(p);
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_status status = job ? lh_plan_make(job, &o, &plan, &err) : LH_EINPUT;
    CHECK_MSG(status == LH_OK || status == LH_EINFEASIBLE ||
                  status == LH_EUNSUPPORTED || status == LH_EINPUT ||
                  status == LH_EINVAL,
              "%s", err.text);
    lh_job_free(job);
    return plan;
}

static lh_plan *plan_of(const job_parts *p)
{
    return plan_with_effort(p, 0);
}

/* Records the difference of a plan with given values to a time of the open
 * plan, and checks that it is acceptable. */
static void compare_time(uint64_t seed, tally *t, const lh_plan *given,
                         const lh_plan *open, int64_t open_ns,
                         const job_parts *p)
{
    static char text[JOB_TEXT];
    const double difference =
        (double)given->best.iteration_ns / (double)open_ns - 1;
    if (t->n < MOST_JOBS)
        t->all[t->n++] = difference;
    const double excess = t->two_sided  ? fabs(difference)
                          : t->reversed ? -difference
                                        : difference;
    if (excess <= TOLERANCE)
        return;
    t->failed++;
    CHECK_MSG(false, "seed %" PRIu64 ": %s: %+.2f %%, gap %.1f %%", seed,
              t->name, 100 * difference, 100 * lh_plan_gap(open));
    job_write(p, text);
    fprintf(stderr, "%s", text);
}

/* Compares a plan with given values with the open one. */
static void compare(uint64_t seed, tally *t, const lh_plan *given,
                    const lh_plan *open, const job_parts *p)
{
    compare_time(seed, t, given, open, open->best.iteration_ns, p);
}

/* Plans the job with the degrees of a layout. Unequal microbatches follow from
 * the others, and are searched only if the job leaves `data` and `micro_batch`
 * open. */
static lh_plan *plan_with_degrees(const job_parts *p, const lh_layout *l,
                                  job_parts *given)
{
    const struct {
        const char *key;
        uint32_t value;
    } degrees[] = {{"tensor", l->tensor}, {"context", l->context},
                   {"expert", l->expert}, {"pipeline", l->pipeline},
                   {"data", l->data},     {"micro_batch", l->micro_batch}};
    const size_t n = sizeof degrees / sizeof *degrees;
    *given = *p;
    for (size_t i = 0; i < (l->group_micro_batches ? n - 2 : n); i++) {
        char value[16];
        snprintf(value, sizeof value, "%" PRIu32, degrees[i].value);
        if (p->experts || strcmp(degrees[i].key, "expert") != 0)
            job_give(given, "layout", degrees[i].key, value);
    }
    return plan_of(given);
}

/* Gives the plan's own degrees. */
static void give_degrees(uint64_t seed, const job_parts *p, const lh_plan *plan)
{
    job_parts given;
    lh_plan *fixed = plan_with_degrees(p, &plan->best.layout, &given);
    CHECK_MSG(fixed, "seed %" PRIu64 ": no plan with its own degrees", seed);
    if (fixed)
        compare(seed, &tallies[OWN_DEGREES], fixed, plan, &given);
    lh_plan_free(fixed);
}

static bool have_same_degrees(const lh_layout *a, const lh_layout *b)
{
    return a->tensor == b->tensor && a->context == b->context &&
           a->expert == b->expert && a->pipeline == b->pipeline &&
           a->data == b->data && a->micro_batch == b->micro_batch;
}

/* Gives the degrees of the fastest alternative with others than the plan. */
static void give_runner_up(uint64_t seed, const job_parts *p,
                           const lh_plan *plan)
{
    const lh_choice *next = NULL;
    for (uint32_t i = 0; i < plan->n_alternatives && !next; i++) {
        const lh_choice *c = &plan->alternatives[i];
        if (c->status == LH_CHOICE_OK &&
            !have_same_degrees(&c->layout, &plan->best.layout))
            next = c;
    }
    for (uint32_t i = 0; i < plan->n_dimension_alternatives && !next; i++) {
        const lh_choice *c = &plan->dimension_alternatives[i].choice;
        if (c->status == LH_CHOICE_OK &&
            !have_same_degrees(&c->layout, &plan->best.layout))
            next = c;
    }
    if (!next)
        return;
    job_parts given;
    lh_plan *fixed = plan_with_degrees(p, &next->layout, &given);
    if (fixed) {
        compare(seed, &tallies[RUNNER_UP], fixed, plan, &given);
        compare_time(seed, &tallies[RUNNER_UP_AS_LISTED], fixed, plan,
                     next->iteration_ns, &given);
    }
    lh_plan_free(fixed);
}

static void give_more(uint64_t seed, const job_parts *p, const lh_plan *plan)
{
    job_parts more = *p;
    more.gbps *= 2;
    lh_plan *wider = p->n_sites > 1 ? plan_of(&more) : NULL;
    if (wider)
        compare(seed, &tallies[BANDWIDTH], wider, plan, &more);
    more = *p;
    for (uint32_t i = 0; i < p->n_sites; i++)
        more.sites[i].memory_gib *= 1.5;
    lh_plan *larger = plan_of(&more);
    if (larger)
        compare(seed, &tallies[MEMORY], larger, plan, &more);
    lh_plan_free(wider);
    lh_plan_free(larger);
}

/* Compares plans of increasing effort, each with the previous one. The last
 * has the default effort, like `plan`. */
static void give_effort(uint64_t seed, const job_parts *p, const lh_plan *plan)
{
    static const uint64_t efforts[] = {13333, 40000};
    lh_plan *less = plan_with_effort(p, efforts[0]);
    lh_plan *more = plan_with_effort(p, efforts[1]);
    CHECK_MSG(less && more, "seed %" PRIu64 ": no plan with less effort", seed);
    if (less && more) {
        compare(seed, &tallies[EFFORT], more, less, p);
        compare(seed, &tallies[EFFORT], plan, more, p);
    }
    lh_plan_free(less);
    lh_plan_free(more);
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
    give_runner_up(seed, &p, plan);
    if (seed % MORE_EVERY == 0)
        give_more(seed, &p, plan);
    if (seed % MORE_EVERY == MORE_EVERY / 2)
        give_effort(seed, &p, plan);
    printf("seed %" PRIu64 ": %s, %" PRIu32 " sites: %.3f s, gap %.2f %%\n",
           seed, p.experts ? "experts" : "dense", p.n_sites,
           (double)plan->best.iteration_ns / 1e9, 100 * gap);
    lh_plan_free(plan);
}

/* A plan that may be more than 0.5 % from the best uses its time limit: a
 * search that ends early is repeated with more effort, unless the remaining
 * time is below half of the last search's. So more than half is used. */
static void the_time_limit_is_used(void)
{
    const double limit_s = 1;
    lhi_random r = {1};
    const job_size tiny = {8, 6, 16};
    const job_parts p = draw_job(&r, &tiny);
    lh_plan *plan = NULL;
    lh_error err = {0};
    const lh_plan_options o = {.size = sizeof o, .seconds = limit_s};
    lh_job *job = job_make(&p);
    const clock_t from = clock();
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    const double used_s = (double)(clock() - from) / CLOCKS_PER_SEC;
    CHECK_MSG(plan && (lh_plan_gap(plan) <= 0.005 || used_s > limit_s / 2),
              "%.2f s", used_s);
    lh_plan_free(plan);
    lh_job_free(job);
}

static int compare_gaps(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Counts the jobs with a plan. */
static uint32_t count_plans(void)
{
    uint32_t n = 0;
    for (int experts = 0; experts < 2; experts++)
        for (uint32_t sites = 1; sites < MAX_DATACENTERS; sites++)
            n += families[experts][sites].n;
    return n;
}

/* Writes which jobs were planned, and how many comparisons failed. */
static size_t write_counts(char *out, size_t room)
{
    uint32_t n = 0, failed = 0;
    for (int i = 0; i < N_TALLIES; i++) {
        n += tallies[i].n;
        failed += tallies[i].failed;
    }
    return (size_t)snprintf(
        out, room,
        "Random jobs with the seeds %" PRIu64 " to %" PRIu64 ": %" PRIu32
        " jobs, of which %" PRIu32 " have a plan.\nOf %" PRIu32
        " comparisons, %" PRIu32 " exceed the limit of %g %%.\n\n",
        first_seed, first_seed + n_jobs - 1, n_jobs, count_plans(), n, failed,
        100 * TOLERANCE);
}

/* Appends the table of gaps. */
static size_t write_gaps(char *out, size_t room)
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
    return len;
}

/* Counts differences within `most`. */
static uint32_t count_within(const tally *t, double most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++)
        n += fabs(t->all[i]) <= most;
    return n;
}

/* Appends the table of differences. */
static size_t write_differences(char *out, size_t room)
{
    size_t len = (size_t)snprintf(
        out, room,
        "\n| given | plans | within 0.05 %% | 0.2 %% | 0.5 %% | 1 %% | "
        "fastest | slowest |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (tally *t = tallies; t < tallies + N_TALLIES; t++) {
        if (t->n == 0)
            continue;
        qsort(t->all, t->n, sizeof *t->all, compare_gaps);
        len += (size_t)snprintf(
            out + len, room - len,
            "| %s | %" PRIu32 " | %" PRIu32 " | %" PRIu32 " | %" PRIu32
            " | %" PRIu32 " | %+.2f %% | %+.2f %% |\n",
            t->name, t->n, count_within(t, 0.0005), count_within(t, 0.002),
            count_within(t, 0.005), count_within(t, 0.01), 100 * t->all[0],
            100 * t->all[t->n - 1]);
    }
    return len;
}

static void plans_are_stable(void)
{
    static char table[8192];
    for (uint32_t i = 0; i < n_jobs; i++) {
        check_job(first_seed + i);
        if (is_interrupted)
            n_jobs = i + 1;
    }
    CHECK(tallies[OWN_DEGREES].n > 0);
    size_t len = write_counts(table, sizeof table);
    len += write_gaps(table + len, sizeof table - len);
    write_differences(table + len, sizeof table - len);
    printf("%s", table);
    if (page)
        CHECK(page_part("test_plan_stability", page, true,
                        (page_tolerance){0}, table));
}

static void interrupt(int number)
{
    (void)number;
    is_interrupted = true;
}

int main(int argc, char **argv)
{
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        n_jobs = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    if (argc > 3 && strcmp(argv[3], "tiny") == 0)
        size = (job_size){8, 6, 16};
    if (argc > 3 && strcmp(argv[3], "small") == 0)
        size = (job_size){64, 40, 128};
    if (argc > 3 && strcmp(argv[3], "large") == 0)
        size = (job_size){256, 40, 256};
    if (argc > 4)
        page = argv[4];
    RUN(the_time_limit_is_used);
    RUN(plans_are_stable);
    return test_summary();
}
