/* SPDX-License-Identifier: Apache-2.0 */
/* Memory breakdown of plans. On random jobs, each rank's parts add up to the
 * peak that the independent verifier finds. On hand-made jobs, each part has
 * its calculated value. */
#include "jobs.h"
#include "plans.h"

#include "base/random.h"

#include <longhaul/check.h>
#include <longhaul/experimental/plan.h>

#include <stdlib.h>

enum { JOBS = 120, HIDDEN = 1024, FFN = 4096, VOCAB = 1000, LAYERS = 8 };

static int64_t sum_of(const lh_plan_memory *m)
{
    return m->parameters_bytes + m->gradients_bytes + m->optimizer_bytes +
           m->activations_bytes + m->buffers_bytes + m->temporary_bytes;
}

static bool is_whole(const lh_plan_memory *m)
{
    return m->parameters_bytes >= 0 && m->gradients_bytes >= 0 &&
           m->optimizer_bytes >= 0 && m->activations_bytes >= 0 &&
           m->buffers_bytes >= 0 && m->temporary_bytes >= 0;
}

static lh_status plan_of(const lh_job *job, lh_plan **plan, lh_error *err)
{
    lh_plan_options o = {
        .size = sizeof o, .no_optimal = true, .partition = LH_PARTITION_EVEN};
    return lh_plan_make(job, &o, plan, err);
}

/* --- random jobs ---------------------------------------------------------- */

static const char *pick(lhi_random *r, const char *const *texts, size_t n)
{
    return texts[lhi_random_below(r, (uint32_t)n)];
}

#define PICK(r, texts) pick(r, texts, sizeof(texts) / sizeof *(texts))

static lh_job *random_job(lhi_random *r, bool elastic)
{
    static const char *const kinds[] = {
        "", "", ", gated: false, tied_embeddings: true",
        ", experts: 4, experts_per_token: 2, expert_ffn: 512",
        (", experts: 4, experts_per_token: 1, expert_ffn: 2048, "
         "shared_expert_ffn: 512, dense_layers: 1")};
    static const char *const recompute[] = {
        "", ", recompute: none", ", recompute: selective", ", recompute: full"};
    static const char *const degrees[] = {
        "tensor: 1, pipeline: 2, data: 4", "tensor: 2, pipeline: 2, data: 2",
        "tensor: 1, pipeline: 4, data: 2", "tensor: 1, pipeline: 1, data: 8",
        "tensor: 1, context: 2, pipeline: 2, data: 2"};
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1", "greedy"};
    static const char *const outermost[] = {"pipeline", "data"};
    static const char *const east[] = {
        "{name: east, nodes: 2}",
        "{name: east, nodes: 2, gpu: {tflops: 100, memory_gib: 60, "
        "memory_gbps: 900}}"};
    bool moe = lhi_random_below(r, 3) == 0 && !elastic;
    const char *given = PICK(r, degrees);
    char training[120], layout[240];
    snprintf(training, sizeof training,
             "{global_batch: %u, sequence: 1024, zero: %u%s}",
             32 << lhi_random_below(r, 2),
             elastic ? 1 + lhi_random_below(r, 3) : lhi_random_below(r, 4),
             PICK(r, recompute));
    snprintf(layout, sizeof layout,
             "{%s, micro_batch: %u, outermost: %s, schedule: %s%s}", given,
             1 + lhi_random_below(r, 2), PICK(r, outermost),
             elastic ? "elastic" : PICK(r, schedules),
             moe ? ", expert: 2" : "");
    return job_with(JOB_SMALL,
                    "  gpus_per_node: 2\n"
                    "  datacenters: [{name: west, nodes: 2}, %s]\n"
                    "model: {layers: 8, hidden: 1024, ffn: 4096, heads: 8, "
                    "vocab: 1000%s}\n"
                    "training: %s\nlayout: %s\n",
                    PICK(r, east),
                    moe ? kinds[3 + lhi_random_below(r, 2)]
                        : kinds[lhi_random_below(r, 3)],
                    training, layout);
}

static void check_parts(const lh_plan *p, uint32_t i)
{
    lh_verdict *verdict = NULL;
    lh_error err = {0};
    bool named = false;
    CHECK_OK(lh_check(p->pipeline, p->schedule, &verdict, &err), err);
    CHECK_INT(p->n_ranks, p->best.layout.pipeline);
    for (uint32_t d = 0; d < p->n_ranks; d++) {
        const lh_plan_memory *m = &p->rank_memory[d];
        CHECK_MSG(sum_of(m) == lh_verdict_peak_memory(verdict, d),
                  "job %u: rank %u has %" PRId64 ", not %" PRId64, i, d,
                  sum_of(m), lh_verdict_peak_memory(verdict, d));
        CHECK_MSG(is_whole(m), "job %u: rank %u has less than nothing", i, d);
        CHECK_INT(m->rank, d);
        named = named || sum_of(m) == p->best.peak_memory_bytes;
    }
    CHECK(named);
    lh_verdict_free(verdict);
    plan_reads_back(p);
}

static void parts_are_the_peak(void)
{
    uint32_t elastic = 0, made = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        lhi_random r = {i + 1};
        lh_plan *plan = NULL;
        lh_error err = {0};
        lh_job *job = random_job(&r, i % 6 == 5);
        lh_status status = job ? plan_of(job, &plan, &err) : LH_EINPUT;
        if (status == LH_OK) {
            made++;
            elastic += plan->best.elastic != NULL;
            check_parts(plan, i);
        } else {
            CHECK_MSG(status == LH_EINFEASIBLE, "job %u: %s", i, err.text);
        }
        lh_plan_free(plan);
        lh_job_free(job);
    }
    CHECK_MSG(made > JOBS / 2 && elastic > 0, "%u plans, %u elastic", made,
              elastic);
}

/* --- hand-made jobs ------------------------------------------------------- */

static lh_job *job_by_hand(int zero, const char *schedule, int chunks)
{
    return job_with(
        JOB_SMALL,
        "  gpus_per_node: 2\n"
        "model: {layers: 8, hidden: 1024, ffn: 4096, heads: 8, vocab: 1000, "
        "gated: false, tied_embeddings: false}\n"
        "training: {global_batch: 16, sequence: 1024, zero: %d, "
        "recompute: none}\n"
        "layout: {tensor: 1, pipeline: 2, data: 2, micro_batch: 1, "
        "chunks_per_device: %d, outermost: pipeline, schedule: %s}\n",
        zero, chunks, schedule);
}

static lh_plan *made_by_hand(int zero, const char *schedule, int chunks)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_job *job = job_by_hand(zero, schedule, chunks);
    CHECK_OK(plan_of(job, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

/* Parameters. A layer has four h x h and two h x f matrices and two norms. The
 * first rank has half of the layers and the embedding. */
enum {
    LAYER = 4 * HIDDEN * HIDDEN + 2 * HIDDEN * FFN + 2 * HIDDEN,
    EMBEDDING = VOCAB * HIDDEN,
    HALF = LAYERS / 2 * LAYER + EMBEDDING,
};

/* Rajbhandari et al.: 2, 4 and 12 bytes per parameter (parameters, gradients,
 * optimizer state), sharded by two replicas from ZeRO 3, 2 and 1 on. GPipe
 * retains all eight microbatches; 1F1B on the first of two ranks retains two.
 * Buffers hold two layers of the sharded state unsharded. */
static void parts_by_hand(void)
{
    static const int64_t sharded[] = {0, 0, 4, 4 + 2};
    for (int zero = 0; zero < 4; zero++)
        for (int all = 0; all < 2; all++) {
            lh_plan *p = made_by_hand(zero, all ? "gpipe" : "1f1b", 1);
            const lh_plan_memory *m = p->rank_memory;
            const lh_chunk *first = lh_pipeline_chunk(p->pipeline, 0);
            CHECK_INT(m->parameters_bytes, 2 * HALF / (zero >= 3 ? 2 : 1));
            CHECK_INT(m->gradients_bytes, 4 * HALF / (zero >= 2 ? 2 : 1));
            CHECK_INT(m->optimizer_bytes, 12 * HALF / (zero >= 1 ? 2 : 1));
            CHECK_INT(m->buffers_bytes, sharded[zero] * 2 * LAYER);
            CHECK_INT(m->temporary_bytes, 0);
            CHECK_INT(m->activations_bytes, (all ? 8 : 2) * first->mem_f);
            lh_plan_free(p);
        }
}

/* Sharding inside datacenters: one site has three replicas, the other one. The
 * single replica holds the complete optimizer state. */
static void parts_where_they_are_most(void)
{
    lh_plan *p = NULL;
    lh_error err = {0};
    lh_job *job = job_with(
        JOB_SMALL,
        "  gpus_per_node: 6\n"
        "model: {layers: 8, hidden: 1024, ffn: 4096, heads: 8, vocab: 1000, "
        "gated: false, tied_embeddings: false}\n"
        "training: {global_batch: 16, sequence: 1024, zero: 1, "
        "recompute: none}\n"
        "layout: {tensor: 1, pipeline: 2, data: 4, micro_batch: 1, "
        "chunks_per_device: 1, sharding: hybrid, schedule: 1f1b,\n"
        "         sites: [{replicas: 3, pipeline: [west]}, "
        "{replicas: 1, pipeline: [east]}]}\n");
    CHECK_OK(plan_of(job, &p, &err), err);
    if (p) {
        const lh_plan_memory *m = p->rank_memory;
        CHECK_INT(m->parameters_bytes, 2 * HALF);
        CHECK_INT(m->gradients_bytes, 4 * HALF);
        CHECK_INT(m->optimizer_bytes, 12 * HALF);
        check_parts(p, 0);
    }
    lh_plan_free(p);
    lh_job_free(job);
}

/* An elastic plan entirely at ZeRO-3 also holds half of all state, plus
 * buffers: twice the gradients and four times the parameters of its largest
 * chunk, here two layers and the embedding. At ZeRO-2 only the gradient buffers
 * remain. */
static void parts_of_elastic_plans(void)
{
    const int64_t chunk = 2 * LAYER + EMBEDDING;
    for (int zero = 2; zero < 4; zero++) {
        lh_plan *p = made_by_hand(zero, "elastic", 2);
        const lh_plan_memory *m = p->rank_memory;
        int64_t buffers = 2 * 4 * chunk + (zero >= 3 ? 4 * 2 * chunk : 0);
        CHECK(p->best.elastic && !p->best.chunk_layers);
        CHECK_INT(m->parameters_bytes, 2 * HALF / (zero >= 3 ? 2 : 1));
        CHECK_INT(m->gradients_bytes, 4 * HALF / 2);
        CHECK_INT(m->optimizer_bytes, 12 * HALF / 2);
        CHECK_INT(m->buffers_bytes, buffers);
        CHECK_INT(m->temporary_bytes, 0);
        check_parts(p, 0);
        lh_plan_free(p);
    }
}

/* Plans with a profile that gives each chunk's total for parameters, gradients
 * and optimizer state. */
static lh_plan *made_as_measured(int zero, const char *schedule,
                                 uint32_t chunks, int64_t held)
{
    lh_profile_entry entries[4];
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_job *job = job_by_hand(zero, schedule, (int)chunks);
    for (uint32_t c = 0; c < 2 * chunks; c++)
        entries[c] = (lh_profile_entry){.kind = LH_PROFILE_CHUNK,
                                        .tensor = 1,
                                        .context = 1,
                                        .expert = 1,
                                        .micro_batch = 1,
                                        .sequence = 1024,
                                        .communication = true,
                                        .f_ns = 1000000,
                                        .d_ns = 1000000,
                                        .w_ns = 1000000,
                                        .activation_bytes = LH_NOT_MEASURED,
                                        .static_bytes = held,
                                        .chunk = c,
                                        .n_chunks = 2 * chunks};
    lh_profile profile = {
        .name = "p.yaml", .n_entries = 2 * chunks, .entries = entries};
    lh_job measured = *job;
    measured.profile = &profile;
    CHECK_OK(plan_of(&measured, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

/* The parts add up to the measured total, in the ratio 2 : 4 : 12, or 2 : 4 : 6
 * where two replicas share the optimizer state. Elastic plans shard the
 * modelled sizes, even if these exceed the measured total. */
static void parts_of_what_was_measured(void)
{
    static const int64_t held[] = {900000000, 120000000, 18000};
    for (int k = 0; k < 3; k++) {
        for (int zero = 0; zero < 2; zero++) {
            lh_plan *p = made_as_measured(zero, "1f1b", 1, held[k]);
            const lh_plan_memory *m = p->rank_memory;
            int64_t all = zero ? 12 : 18;
            CHECK(llabs(m->parameters_bytes - held[k] * 2 / all) <= 1);
            CHECK(llabs(m->gradients_bytes - held[k] * 4 / all) <= 1);
            CHECK_INT(m->parameters_bytes + m->gradients_bytes +
                          m->optimizer_bytes,
                      held[k]);
            CHECK_INT(m->buffers_bytes, 0);
            check_parts(p, 0);
            lh_plan_free(p);
        }
        if (k == 2) /* measured total below the sharded part */
            continue;
        lh_plan *own = made_as_measured(3, "elastic", 2, held[k]);
        CHECK(own->best.elastic != NULL);
        check_parts(own, 0);
        lh_plan_free(own);
    }
}

/* --- files ---------------------------------------------------------------- */

/* Replaces `from`, which occurs once, and checks that the file is rejected with
 * the message `says`. */
static void refused(const char *text, const char *from, const char *to,
                    const char *says)
{
    const char *at = strstr(text, from);
    char *changed = malloc(strlen(text) + strlen(to) + 1);
    CHECK_MSG(at != NULL, "no %s", from);
    if (at && changed) {
        sprintf(changed, "%.*s%s%s", (int)(at - text), text, to,
                at + strlen(from));
        plan_refused(changed, says);
    }
    free(changed);
}

static void edited_files_are_refused(void)
{
    char *text = NULL;
    lh_error err = {0};
    lh_plan *p = made_by_hand(1, "1f1b", 1);
    CHECK_OK(lh_plan_format(p, &text, NULL, &err), err);
    refused(text, "\"temporary_bytes\": 0", "\"temporary_bytes\": 1",
            "bytes, but rank 0 holds");
    refused(text, "\"rank\": 1", "\"rank\": 0",
            "but the entry belongs to rank 1");
    refused(text, "\"buffers_bytes\": 0", "\"buffers_bytes\": -2", "");
    /* Remove an entry. */
    char *first = strstr(text, "\"rank\": 0"),
         *second = strstr(text, "\"rank\": 1");
    CHECK(first && second);
    if (first && second) {
        memmove(first, second, strlen(second) + 1);
        plan_refused(text, "has 1 entries for 2 pipeline ranks");
    }
    lh_text_free(text);
    lh_plan_free(p);
}

int main(void)
{
    RUN(parts_are_the_peak);
    RUN(parts_by_hand);
    RUN(parts_where_they_are_most);
    RUN(parts_of_elastic_plans);
    RUN(parts_of_what_was_measured);
    RUN(edited_files_are_refused);
    return test_summary();
}
