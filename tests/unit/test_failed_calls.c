/* SPDX-License-Identifier: Apache-2.0 */
/* Failed calls leave their outputs unchanged, and successful ones the error:
 * each call with one invalid argument, and with each allocation failing in
 * turn. */
#include "failing_calls.h"
#include "failing_placement_calls.h"

/* --- all calls ------------------------------------------------------------ */

#define EACH(X)                                                                \
    X(takes_pipeline)                                                          \
    X(gives_host_memory)                                                       \
    X(injects)                                                                 \
    X(describes)                                                               \
    X(makes_schedule)                                                          \
    X(finds_method)                                                            \
    X(chooses_auto)                                                            \
    X(chooses_optimal)                                                         \
    X(solves)                                                                  \
    X(certifies)                                                               \
    X(bounds)                                                                  \
    X(weighs)                                                                  \
    X(draws_curve)                                                             \
    X(simulates)                                                               \
    X(evaluates)                                                               \
    X(analyses)                                                                \
    X(shakes)                                                                  \
    X(draws_times)                                                             \
    X(follows)                                                                 \
    X(plays)                                                                   \
    X(makes_places)                                                            \
    X(moves_hosts)                                                             \
    X(makes_layers)                                                            \
    X(plays_moving)                                                            \
    X(plays_sharing)                                                           \
    X(monitors)                                                                \
    X(adapts)                                                                  \
    X(decides)                                                                 \
    X(plays_adapting)                                                          \
    X(estimates)                                                               \
    X(reads_recording)                                                         \
    X(reads_ranks)                                                             \
    X(reads_profiler)                                                          \
    X(diagnoses)                                                               \
    X(reshapes)                                                                \
    X(reshapes_with_links)                                                     \
    X(judges)                                                                  \
    X(judges_certificate)                                                      \
    X(makes_trace)                                                             \
    X(lowers)                                                                  \
    X(plans)                                                                   \
    X(plans_pipeline)                                                          \
    X(compares)                                                                \
    X(prices)                                                                  \
    X(lists_ops)                                                               \
    X(drafts)                                                                  \
    X(finds_group)                                                             \
    X(finds_path)                                                              \
    X(exchanges)                                                               \
    X(sends)                                                                   \
    X(sets_link)                                                               \
    X(queues)                                                                  \
    X(times_events)                                                            \
    X(chooses_elastic)                                                         \
    X(searches_elastic)                                                        \
    X(reconstructs)                                                            \
    X(routes)                                                                  \
    X(loads)                                                                   \
    X(reads_job)                                                               \
    X(reads_model)                                                             \
    X(reads_plan)                                                              \
    X(reads_trace)                                                             \
    X(reads_profile)                                                           \
    X(reads_events)                                                            \
    X(reads_pipeline)                                                          \
    X(reads_schedule)                                                          \
    X(reads_certificate)                                                       \
    X(reads_scenario)                                                          \
    X(reads_topology)                                                          \
    X(reads_file)                                                              \
    X(writes_job)                                                              \
    X(writes_plan)                                                             \
    X(writes_trace)                                                            \
    X(writes_pipeline)                                                         \
    X(writes_schedule)                                                         \
    X(writes_certificate)                                                      \
    X(writes_svg)                                                              \
    X(writes_terminal)

static const struct {
    const char *name;
    lh_status (*call)(bool bad);
} calls[] = {
#define ROW(name) {#name, name},
    EACH(ROW)
#undef ROW
};

static bool reads(const char *name)
{
    return strncmp(name, "reads_", 6) == 0;
}

/* Its ranks allocate on their own threads, in no fixed order. */
static void wrong_transport(void)
{
    test_name = "trains";
    CHECK(trains(true) != LH_OK);
    CHECK(trains(false) == LH_OK);
}

static void wrong_input(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        test_name = calls[i].name;
        CHECK_MSG(calls[i].call(true) != LH_OK, "%s does not fail", test_name);
        if (!reads(test_name))
            CHECK_MSG(calls[i].call(false) == LH_OK, "%s fails: %s", test_name,
                      err.text);
    }
}

/* As FAIL_EACH_ALLOC, but a call with many allocations is not run as often:
 * after some of them, it fails in steps. */
static void no_memory(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        test_name = calls[i].name;
        for (int64_t n = 0;; n += 1 + n / 16) {
            fail_alloc_hit = false;
            fail_alloc_after = n;
            calls[i].call(false);
            fail_alloc_after = -1;
            if (!fail_alloc_hit)
                break;
        }
    }
}

int main(void)
{
    make_all();
    RUN(wrong_transport);
    RUN(wrong_input);
    RUN(no_memory);
    free_all();
    return test_summary();
}
