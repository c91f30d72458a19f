/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits and plans, on seeded random jobs whose search completes. More
 * memory never gives a slower plan, and a larger reserve never makes an
 * infeasible job feasible.
 *
 * Memory-aware methods (greedy, look-ahead) build other orders with more
 * memory, without a guarantee on their time. If the job leaves the schedule
 * open, the test therefore requires only that a plan exists. */
#include "jobs.h"

#include "base/random.h"
#include "sanitized.h"

#include <longhaul/experimental/plan.h>

#include <stdlib.h>

static const double GIB = 1 << 30;

static const char *pick(lhi_random *r, const char *const *texts, size_t n)
{
    return texts[lhi_random_below(r, (uint32_t)n)];
}

#define PICK(r, texts) pick(r, texts, sizeof(texts) / sizeof *(texts))

/* Samples the changes to JOB_SMALL, except the GPU memory. */
static void draw_job(lhi_random *r, char *text, size_t room)
{
    static const char *const kinds[] = {
        "", "", ", gated: false, tied_embeddings: true",
        ", experts: 4, experts_per_token: 2, expert_ffn: 2048"};
    static const char *const recompute[] = {"", "", ", recompute: none",
                                            ", recompute: [mlp, layernorm]",
                                            ", recompute: full"};
    static const char *const zero[] = {"", ", zero: 1", ", zero: 2",
                                       ", zero: 3"};
    static const char *const layouts[] = {
        "{outermost: pipeline, schedule: 1f1b}",
        "{outermost: pipeline, pipeline: 2, schedule: zb-h1}",
        "{outermost: pipeline, schedule: interleaved-1f1b}",
        "{outermost: data, schedule: gpipe}",
        "{outermost: pipeline}",
        "{outermost: pipeline, tensor: 1, pipeline: 4}",
        "{outermost: pipeline, pipeline: 2, chunks_per_device: 2}",
        "{outermost: data, micro_batch: 1}"};
    const char *kind = PICK(r, kinds);
    bool moe = strstr(kind, "experts") != NULL;
    const char *again = PICK(r, recompute);

    if (moe && strstr(again, "mlp"))
        again = ", recompute: [moe, layernorm]";
    snprintf(text, room,
             "  gpus_per_node: 2\n"
             "  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1}]\n"
             "model: {layers: %u, hidden: 1024, ffn: 4096, heads: 8, "
             "vocab: %u%s}\n"
             "training: {global_batch: %u, sequence: 1024%s%s}\n"
             "layout: %s\n",
             4 + 4 * lhi_random_below(r, 2),
             1000 + 63000 * (uint32_t)lhi_random_below(r, 2), kind,
             8 << lhi_random_below(r, 2), PICK(r, zero), again,
             PICK(r, layouts));
}

/* Plans with `gib` of memory less the reserve. Returns the iteration time, or
 * INT64_MAX if there is no plan. *held: the plan's peak memory; *closed:
 * cleared if parts of the search remain unexplored. */
static int64_t plan_in(const char *changes, double gib, const char *reserve,
                       int64_t *held, bool *closed)
{
    lh_plan_options o = {
        .size = sizeof o, .no_optimal = true, .partition = LH_PARTITION_EVEN};
    lh_plan *plan = NULL;
    lh_error err = {0};
    int64_t ns = INT64_MAX;
    lh_job *job = job_with(JOB_SMALL,
                           "  gpu: {tflops: 300, memory_gib: %.9f, "
                           "memory_gbps: 2000}\n"
                           "  memory_reserve: %s\n%s",
                           gib, reserve, changes);
    lh_status status = job ? lh_plan_make(job, &o, &plan, &err) : LH_EINPUT;
    if (status == LH_OK) {
        ns = plan->best.iteration_ns;
        *held = plan->best.peak_memory_bytes;
        *closed = *closed && plan->n_unexplored == 0;
        CHECK(plan->best.peak_memory_bytes <= plan->best.memory_limit_bytes);
    } else {
        CHECK_MSG(status == LH_EINFEASIBLE, "%s: %s", changes, err.text);
    }
    lh_plan_free(plan);
    lh_job_free(job);
    return ns;
}

enum { JOBS = OF_CASES(40) };

/* Checks that the time with more memory is acceptable. */
static bool no_slower(const char *changes, int64_t with_less, int64_t with_more)
{
    if (strstr(changes, "schedule: "))
        return with_more <= with_less;
    return with_more < INT64_MAX || with_less == INT64_MAX;
}

static void more_memory_is_no_slower(void)
{
    static const double shares[] = {0.97, 0.85, 0.7, 0.55, 0.4, 0.25};
    uint32_t differ = 0, skip_without = 0, ended = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        lhi_random r = {1000 + i};
        char changes[800];
        int64_t most = 0, held = 0, before, ns;
        bool closed = true;
        draw_job(&r, changes, sizeof changes);
        before = plan_in(changes, 200, "0", &most, &closed);
        for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) {
            double gib = shares[k] * (double)most / GIB;
            ns = plan_in(changes, gib, "0", &held, &closed);
            if (!closed)
                break;
            CHECK_MSG(no_slower(changes, ns, before),
                      "job %u: %" PRId64 " ns in %.3f GiB, %" PRId64
                      " with more\n%s",
                      i, ns, gib, before, changes);
            differ += ns != before && ns != INT64_MAX;
            skip_without += ns == INT64_MAX;
            before = ns;
        }
        ended += closed;
    }
    /* All relevant outcomes must occur often enough. */
    CHECK_MSG(differ > JOBS / 4 && skip_without > JOBS / 4 && ended > JOBS / 2,
              "%u differ, %u lack memory, %u ended", differ, skip_without,
              ended);
}

/* A reserve as a share, the same reserve in GiB, and a GPU with correspondingly
 * less memory give equal plans. */
static void a_reserve_is_memory(void)
{
    for (uint32_t i = 0; i < JOBS / 4; i++) {
        lhi_random r = {5000 + i};
        char changes[800], gib[40];
        int64_t most = 0, held = 0, ns, before;
        bool closed = true;
        draw_job(&r, changes, sizeof changes);
        before = plan_in(changes, 200, "0", &most, &closed);
        double all = 1.05 * (double)most / GIB;
        for (uint32_t percent = 0; percent <= 60 && closed; percent += 20) {
            char share[16];
            snprintf(share, sizeof share, "%u%%", percent);
            snprintf(gib, sizeof gib, "%.9f", all * percent / 100);
            ns = plan_in(changes, all, share, &held, &closed);
            CHECK_INT(
                plan_in(changes, all, percent ? gib : "0", &held, &closed), ns);
            CHECK_INT(plan_in(changes, all * (100 - percent) / 100, "0", &held,
                              &closed),
                      ns);
            CHECK(no_slower(changes, ns, before) || !closed);
            before = ns;
        }
    }
}

int main(void)
{
    RUN(more_memory_is_no_slower);
    RUN(a_reserve_is_memory);
    return test_summary();
}
