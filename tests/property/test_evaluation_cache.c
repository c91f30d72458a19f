/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluation cache for methods. Cached outcomes equal the simulator's, on
 * the second lookup as on the first, and pipelines with any difference never
 * share an entry. Uses seeded random pipelines with all optional features. */
#include "test.h"

#include "cases.h"
#include "planner/layout/evaluation_cache.h"
#include "random_pipeline.h"
#include "schedule/methods/sched.h"

#include <ctype.h>
#include <inttypes.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <string.h>

static uint32_t n_cases = OF_CASES(1500), first_case;

static lh_pipeline *draw(uint32_t number)
{
    rng r = {number};
    random_shape shape = {.everything = number % 2, .max_chunks = 2};
    return random_pipeline(&r, &shape);
}

static uint64_t n_useless; /* outcomes that were not computed */

/* --- cached outcomes ------------------------------------------------------ */

static bool is_same(const lhi_method_outcome *a, const lhi_method_outcome *b)
{
    if (a->status != b->status || strcmp(a->why, b->why) != 0)
        return false;
    return a->status != LH_CHOICE_OK ||
           (a->makespan_ns == b->makespan_ns &&
            a->peak_memory_bytes == b->peak_memory_bytes &&
            a->memory_limit_bytes == b->memory_limit_bytes &&
            memcmp(&a->bubble_ratio, &b->bubble_ratio, sizeof(double)) == 0);
}

/* Checks that the reported memory is that of the device with the least
 * headroom. */
static void check_memory(const lh_pipeline *p, const lh_timeline *t,
                         const lhi_method_outcome *o)
{
    int64_t least = o->memory_limit_bytes - o->peak_memory_bytes;
    bool found = false;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        int64_t limit = lh_pipeline_memory_limit(p, d);
        int64_t peak = lh_timeline_peak_memory(t, d);
        CHECK(limit - peak >= least);
        found = found || (limit == o->memory_limit_bytes &&
                          peak == o->peak_memory_bytes);
    }
    CHECK(found);
}

static void check_outcome(const lh_pipeline *p, const char *method,
                          const lhi_method_outcome *o)
{
    lh_schedule *schedule = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    lh_status status = lh_method_run(method, p, NULL, &schedule, NULL, &err);
    if (status != LH_OK) {
        CHECK(o->status ==
              (status == LH_EINFEASIBLE ? LH_CHOICE_MEMORY : LH_CHOICE_FAILED));
        CHECK_STR(o->why, err.text);
        return;
    }
    CHECK_OK(lh_simulate(p, schedule, NULL, &t, &err), err);
    if (t) {
        CHECK_INT(o->status, LH_CHOICE_OK);
        CHECK_INT(o->makespan_ns, lh_timeline_makespan(t));
        CHECK(o->bubble_ratio == lh_timeline_bubble_ratio(t));
        check_memory(p, t, o);
    }
    lh_timeline_free(t);
    lh_schedule_free(schedule);
}

/* Looks the method up with limits from which makespans are useless, in falling
 * and rising order. The outcome equals `full`, or is only marked as useless; a
 * makespan below the limit is never marked. */
static void check_useless(const lh_pipeline *p, const char *method,
                          const lhi_method_outcome *full, lhi_arena *mem)
{
    const int64_t ns = full->makespan_ns;
    const int64_t limits[] = {ns - ns / 8, ns / 2, ns, ns + 1, ns - ns / 8};
    lhi_evaluation_cache *tried = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_evaluation_cache_make(&tried, &err), err);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        lhi_method_outcome o;
        if (limits[i] <= 0)
            continue;
        CHECK_OK(lhi_evaluation_cache_run_method(tried, p, method, 1, limits[i],
                                                 mem, &o, NULL, &err),
                 err);
        CHECK_MSG(o.is_useless ? ns >= limits[i] && o.makespan_ns <= ns
                               : is_same(full, &o),
                  "%s: %s %" PRId64 " of %" PRId64 " with the limit %" PRId64,
                  method, o.is_useless ? "useless from" : "makespan",
                  o.makespan_ns, ns, limits[i]);
        n_useless += o.is_useless;
    }
    lhi_evaluation_cache_free(tried);
}

/* Looks the method up twice, then with its schedule. */
static void check_method(lhi_evaluation_cache *tried, const lh_pipeline *p,
                         const char *method, lhi_arena *mem)
{
    lhi_method_outcome first, again, made;
    lh_schedule *schedule = NULL;
    lh_error err = {0};
    lh_status status = lhi_evaluation_cache_run_method(tried, p, method, 1, 0,
                                                       mem, &first, NULL, &err);
    if (status != LH_OK)
        return; /* random operations may deadlock */
    check_outcome(p, method, &first);
    CHECK_OK(lhi_evaluation_cache_run_method(tried, p, method, 1, 0, mem,
                                             &again, NULL, &err),
             err);
    CHECK_OK(lhi_evaluation_cache_run_method(tried, p, method, 1, 0, mem, &made,
                                             &schedule, &err),
             err);
    CHECK(is_same(&first, &again) && is_same(&first, &made));
    CHECK((schedule != NULL) == (first.status == LH_CHOICE_OK));
    lh_schedule_free(schedule);
    if (first.status == LH_CHOICE_OK)
        check_useless(p, method, &first, mem);
}

static void outcomes_are_those_of_the_simulator(void)
{
    lhi_evaluation_cache *tried = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_evaluation_cache_make(&tried, &err), err);
    for (uint32_t i = first_case; tried && i < first_case + n_cases; i++) {
        lh_pipeline *p = draw(i);
        lhi_arena *mem = lhi_arena_make(0);
        for (uint32_t m = 0; m < lhi_n_methods; m++)
            if (lhi_methods[m].kind != LHI_METHOD_META &&
                (lhi_methods[m].kind != LHI_METHOD_SLOW || i % 8 == 0))
                check_method(tried, p, lhi_methods[m].name, mem);
        lhi_arena_free(mem);
        lh_pipeline_free(p);
    }
    lhi_evaluation_cache_free(tried);
    CHECK(n_useless > n_cases);
}

/* --- pipeline equivalence ------------------------------------------------- */

static bool is_alike(const lh_pipeline *a, const lh_pipeline *b)
{
    lhi_fingerprint x = lhi_pipeline_fingerprint(a);
    lhi_fingerprint y = lhi_pipeline_fingerprint(b);
    CHECK((x.a == y.a) == (x.b == y.b));
    return x.a == y.a;
}

static lh_pipeline *parse(const char *text)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    return lh_pipeline_parse(text, strlen(text), "p", &p, &err) == LH_OK ? p
                                                                         : NULL;
}

static char *text_of(const lh_pipeline *p)
{
    char *text = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_format(p, &text, NULL, &err), err);
    return text;
}

/* Changes each digit in the pipeline's text, outside names, and checks that
 * fingerprints are equal only for equal pipelines. */
static void change_digits(uint32_t number, const lh_pipeline *p, char *text,
                          uint64_t *n)
{
    bool quoted = false;
    char *own = text_of(p);
    for (char *at = text; own && *at; at++) {
        quoted = quoted != (*at == '"');
        if (quoted || !isdigit((unsigned char)*at))
            continue;
        char was = *at;
        *at = was == '9' ? '8' : (char)(was + 1);
        lh_pipeline *other = parse(text);
        char *others = other ? text_of(other) : NULL;
        CHECK_MSG(!others || is_alike(p, other) == (strcmp(own, others) == 0),
                  "case %" PRIu32 ", %c in place of %c before %.40s", number,
                  *at, was, at + 1);
        *n += other != NULL;
        *at = was;
        lh_text_free(others);
        lh_pipeline_free(other);
    }
    lh_text_free(own);
}

static void others_have_another_fingerprint(void)
{
    uint64_t n = 0;
    for (uint32_t i = first_case; i < first_case + n_cases / 10; i++) {
        lh_pipeline *p = draw(i), *again = NULL;
        char *text = text_of(p);
        if (text)
            again = parse(text);
        CHECK(again && is_alike(p, again));
        if (again)
            change_digits(i, p, text, &n);
        lh_text_free(text);
        lh_pipeline_free(again);
        lh_pipeline_free(p);
    }
    CHECK(n > n_cases);
}

/* Arguments: [CASES [FIRST]] */
int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(outcomes_are_those_of_the_simulator);
    RUN(others_have_another_fingerprint);
    return test_summary();
}
