/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the ranks' observations of an iteration for a monitor. The simulator
 * provides the observations. */
#include "runtime/engine/iteration_observation.h"
#include "scheduled.h"
#include "test.h"
#include "uniform.h"
#include "virtual_time.h"

#include <longhaul/experimental/simulate.h>

#include <stdlib.h>

enum { MOST_RANKS = 8 };

/* A pipeline with ranks, their observations, and the simulation. */
typedef struct stage_memory {
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lh_exec *exec;
    lh_timeline *t;
    lhi_device *device;
    lhi_job job;
    lhi_iteration_observation *sight;
    lhi_rank_observation parts[MOST_RANKS];
} stage;

/* Creates a rank's rows from the simulation, `later_ns` ahead on its clock. */
static lhi_pass_observation *rows_of(const stage *s, uint32_t rank,
                                     int64_t later_ns)
{
    uint32_t n, n_messages;
    const lh_timeline_run *runs = lh_timeline_runs(s->t, rank, &n);
    const lh_message *all = lh_timeline_messages(s->t, &n_messages);
    lhi_pass_observation *rows = calloc(n, sizeof *rows);
    for (uint32_t i = 0; i < n; i++) {
        rows[i].ready_ns = runs[i].start_ns + later_ns;
        rows[i].ended_ns = runs[i].end_ns + later_ns;
        rows[i].free_ns = runs[i].issued_ns + later_ns;
        if (runs[i].message == LH_NONE)
            continue;
        const lh_message *m = &all[runs[i].message];
        rows[i].handed_over_ns = m->ready_ns;
        rows[i].transfer_start_ns =
            s->job.emulates ? m->depart_ns : m->ready_ns;
        rows[i].arrived_ns = m->arrive_ns + later_ns;
    }
    return rows;
}

/* Three stages whose links are busy longer than passes. */
static void set_up(stage *s, lh_receives receives, uint32_t coupled,
                   bool emulates, uint32_t n_replicas)
{
    lh_error err = {0};
    *s = (stage){0};
    s->pipeline = uniform_make(
        (uniform){.placement = "ud",
                  .devices = 3,
                  .microbatches = 5,
                  .f = 2,
                  .d = 2,
                  .w = 1,
                  .more = "links:\n"
                          "  - {from: 0, to: 1, latency: 7, transfer: 3}\n"
                          "  - {from: 1, to: 0, latency: 4, transfer: 3}\n"
                          "  - {from: 1, to: 2, latency: 2, transfer: 3}\n"
                          "  - {from: 2, to: 1, latency: 1, transfer: 3}\n"});
    s->schedule = schedule_by(s->pipeline, "zb-h2");
    const lh_exec_options how = {
        .size = sizeof how, .receives = receives, .coupled_queue = coupled};
    CHECK_OK(lh_exec_make(s->pipeline, s->schedule, &how, &s->exec, &err), err);
    const lh_sim_options sim = lhi_exec_sim_options(s->exec);
    CHECK_OK(lh_simulate(s->pipeline, s->schedule, &sim, &s->t, &err), err);
    CHECK_OK(lhi_device_timed(s->pipeline, 0, 640, 0, &s->device, &err), err);
    s->job = (lhi_job){.pipeline = s->pipeline,
                       .exec = s->exec,
                       .grid = {.n_devices = 3,
                                .replicas = n_replicas,
                                .context = 1,
                                .tensor = 1,
                                .expert = 1,
                                .expert_tensor = 1},
                       .emulates = emulates};
    CHECK_OK(
        lhi_iteration_observation_make(&s->job, s->device, &s->sight, &err),
        err);
    for (uint32_t r = 0; r < 3 * n_replicas; r++) {
        s->parts[r].rows = rows_of(s, r % 3, 0);
        s->parts[r].head.n_passes = s->exec->ranks[r % 3].n_passes;
    }
}

static void tear_down(stage *s)
{
    for (uint32_t r = 0; r < MOST_RANKS; r++)
        free(s->parts[r].rows);
    lhi_iteration_observation_free(s->sight);
    s->device->ops->close(s->device);
    lh_timeline_free(s->t);
    lh_exec_free(s->exec);
    lh_schedule_free(s->schedule);
    lh_pipeline_free(s->pipeline);
}

static lh_observation merge(stage *s)
{
    lh_error err = {0};
    lh_observation seen = {0};
    CHECK_OK(lhi_iteration_observation_merge(s->sight, s->exec, s->parts, 3,
                                             &seen, &err),
             err);
    CHECK_INT(seen.step, 3);
    return seen;
}

/* Finds message `m` in the iteration; NULL: none. */
static const lh_observed_message *find(const lh_observation *seen,
                                       const lh_message *m)
{
    for (size_t i = 0; i < seen->n_messages; i++)
        if (seen->messages[i].link == m->link &&
            seen->messages[i].arrived_ns == m->arrive_ns)
            return &seen->messages[i];
    return NULL;
}

static void messages_are_as_simulated(void)
{
    static const struct {
        lh_receives receives;
        uint32_t coupled;
        bool emulates;
    } ways[] = {{LH_RECEIVES_EARLY, 0, true},
                {LH_RECEIVES_LATE, 0, true},
                {LH_RECEIVES_LATE, 1, true},
                {LH_RECEIVES_EARLY, 1, true},
                {LH_RECEIVES_EARLY, 0, false}};
    uint32_t n_queued = 0, n_posted = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        stage s;
        uint32_t n;
        set_up(&s, ways[w].receives, ways[w].coupled, ways[w].emulates, 1);
        const lh_observation seen = merge(&s);
        const lh_message *all = lh_timeline_messages(s.t, &n);
        CHECK_INT(seen.n_messages, n);
        for (uint32_t i = 0; i < n; i++) {
            const lh_observed_message *x = find(&seen, &all[i]);
            CHECK(x != NULL);
            if (!x)
                continue;
            CHECK_INT(x->entered_ns, all[i].depart_ns);
            CHECK_INT(x->bytes, 640);
            /* The wait before its link: for its receive or for its turn in the
             * sender's queue, not for an earlier message. */
            int64_t could =
                x->produced_ns > x->posted_ns ? x->produced_ns : x->posted_ns;
            CHECK_INT(could, all[i].ready_ns);
            n_queued += all[i].depart_ns > all[i].ready_ns;
            n_posted += x->posted_ns > 0;
        }
        size_t n_passes = 0;
        for (uint32_t r = 0; r < 3; r++)
            n_passes += s.exec->ranks[r].n_passes;
        CHECK_INT(seen.n_passes, n_passes);
        for (size_t i = 0; i < seen.n_passes; i++)
            CHECK_INT(seen.passes[i].ns,
                      seen.passes[i].pass.kind == LH_W ? 1000000 : 2000000);
        tear_down(&s);
    }
    CHECK_MSG(n_queued > 5 && n_posted > 2,
              "%u waited for their link, %u for "
              "a receive",
              (unsigned)n_queued, (unsigned)n_posted);
}

/* The slowest replica counts, if all use one clock. */
static void the_slowest_replica_counts(void)
{
    stage s;
    uint32_t clocks[3];
    set_up(&s, LH_RECEIVES_EARLY, 0, true, 2);
    uint32_t last = s.exec->ranks[1].n_passes - 1, at = 0;
    while (s.parts[4].rows[at].arrived_ns == 0)
        at++;
    s.parts[4].rows[at].arrived_ns += 77; /* second replica */
    s.parts[1].rows[last].ended_ns += 55; /* first replica */
    s.parts[4].rows[last].ended_ns += 66;
    lh_observation seen = merge(&s);
    size_t n_later = 0;
    int64_t longest = 0;
    for (size_t i = 0; i < seen.n_messages; i++)
        n_later += seen.messages[i].arrived_ns % 1000000 == 77;
    for (size_t i = 0; i < seen.n_passes; i++)
        if (seen.passes[i].ns % 1000000 > longest)
            longest = seen.passes[i].ns % 1000000;
    CHECK_INT(n_later, 1);
    CHECK_INT(longest, 66);
    CHECK(!lhi_iteration_observation_find_clocks(s.parts, 3, clocks));
    /* With two clocks the slowest message is unknown. */
    s.parts[4].head.clock = 9;
    seen = merge(&s);
    for (size_t i = 0; i < seen.n_messages; i++)
        CHECK_INT(seen.messages[i].arrived_ns % 1000000, 0);
    CHECK(!lhi_iteration_observation_find_clocks(s.parts, 3, clocks));
    s.parts[1].head.clock = 9;
    CHECK(lhi_iteration_observation_find_clocks(s.parts, 3, clocks));
    CHECK(clocks[0] == 0 && clocks[1] == 1 && clocks[2] == 0);
    tear_down(&s);
}

/* Real links do not report when they were free; the derived entries do not
 * depend on clock offsets. */
static void clock_offsets_change_no_entry_time(void)
{
    stage s;
    uint32_t n;
    set_up(&s, LH_RECEIVES_EARLY, 0, false, 1);
    const lh_message *all = lh_timeline_messages(s.t, &n);
    free(s.parts[1].rows);
    s.parts[1].rows = rows_of(&s, 1, 5000000000);
    /* Messages to rank 1 are timed with its clock. */
    for (uint32_t r = 0; r < 3; r += 2)
        for (uint32_t i = 0; i < s.parts[r].head.n_passes; i++)
            if (s.parts[r].rows[i].arrived_ns) {
                s.parts[r].rows[i].handed_over_ns += 5000000000;
                s.parts[r].rows[i].transfer_start_ns += 5000000000;
            }
    const lh_observation seen = merge(&s);
    for (uint32_t i = 0; i < n; i++) {
        const int64_t by_sender = all[i].from == 1 ? 5000000000 : 0;
        lh_message at = all[i];
        at.arrive_ns += all[i].to == 1 ? 5000000000 : 0;
        const lh_observed_message *x = find(&seen, &at);
        CHECK(x && x->entered_ns == all[i].depart_ns + by_sender);
    }
    tear_down(&s);
}

static void collectives_of_whole_chunks_are_observed(void)
{
    stage s;
    lhi_collective_record played[] = {{1, false, LH_NONE, 1, 2, 5, 9, 0},
                                      {1, true, LH_NONE, 1, 12, 15, 20, 0},
                                      {1, true, 4, 1, 12, 15, 20, 0}};
    set_up(&s, LH_RECEIVES_EARLY, 0, true, 1);
    s.parts[1].collectives = played;
    s.parts[1].head.n_collectives = 3;
    const lh_observation seen = merge(&s);
    CHECK_INT(seen.n_collectives, 2);
    CHECK(seen.collectives[0].chunk == 1 && seen.collectives[0].ns == 7);
    CHECK(!seen.collectives[0].is_reduce_scatter);
    CHECK(seen.collectives[1].is_reduce_scatter);
    CHECK_INT(seen.collectives[1].ns, 8);
    tear_down(&s);
}

int main(void)
{
    RUN_VIRTUAL(messages_are_as_simulated);
    RUN_VIRTUAL(the_slowest_replica_counts);
    RUN_VIRTUAL(clock_offsets_change_no_entry_time);
    RUN_VIRTUAL(collectives_of_whole_chunks_are_observed);
    return test_summary();
}
