/* SPDX-License-Identifier: Apache-2.0 */
/* Sliced sequences: the format, durations by hand, the orders of Seq1F1B
 * compared with those of its authors' code (tests/data/zero_bubble/SOURCE.md),
 * the rules in simulator and verifier, and all orders of small pipelines. */
#include "jobs.h"
#include "plans.h"
#include "schedule/solver/bound/closed_forms.h"
#include "uniform.h"

#include <inttypes.h>
#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/export.h>

/* Returns a pipeline with `n` sequences of `k` slices; with more than two
 * devices, each is in another datacenter. */
static lh_pipeline *sliced(unsigned devices, unsigned n, unsigned k,
                           double attention, const char *backward)
{
    char more[128];
    snprintf(more, sizeof more,
             "slices: {count: %u, attention: %g}\nbackward: %s\n", k, attention,
             backward);
    return uniform_make((uniform){.placement = "ud",
                                  .devices = devices,
                                  .microbatches = n * k,
                                  .f = 10,
                                  .d = 12,
                                  .w = 8,
                                  .datacenters = devices > 2 ? devices : 0,
                                  .latency = devices > 2 ? 3 : 0,
                                  .transfer = devices > 2 ? 1 : 0,
                                  .more = more});
}

/* --- format --------------------------------------------------------------- */

static void refuses(const char *keys, const char *why)
{
    char text[512];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\nmicrobatches: 6\ndevices: 2\n%s", keys);
    CHECK_INT(lh_pipeline_parse(text, strlen(text), "p", &p, &err), LH_EINPUT);
    CHECK_HAS(err.text, why);
}

static void is_read_and_written(void)
{
    lh_pipeline *p = sliced(2, 3, 2, 0.5, "split"), *again = NULL;
    lh_pipeline_desc d = {.size = sizeof d};
    lh_error err = {0};
    char *text = NULL, *second = NULL;
    CHECK_OK(lh_pipeline_describe(p, &d, &err), err);
    CHECK_INT(d.n_slices, 2);
    CHECK_NEAR(d.slice_attention, 0.5, 0);
    CHECK_OK(lh_pipeline_format(p, &text, NULL, &err), err);
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &again, &err), err);
    CHECK_OK(lh_pipeline_format(again, &second, NULL, &err), err);
    CHECK_STR(second, text);
    lh_text_free(second);
    lh_text_free(text);
    lh_pipeline_free(again);
    lh_pipeline_free(p);
#define UD "uniform: {F: 1, D: 1, W: 1}\n"
    refuses("slices: {count: 4}\n" UD, "4 slices do not divide 6");
    refuses("slices: {count: 1}\n" UD, "slices.count");
    refuses("slices: {attention: 0.5}\n" UD, "count");
    refuses("slices: {count: 2, attention: 1.5}\n" UD, "attention");
    refuses("slices: {count: 2}\noverlap: {F+B: 0.9}\n" UD,
            "slices: cannot be combined");
    refuses("slices: {count: 2}\n"
            "uniform: {placement: bd, F: 1, D: 1, W: 1}\n",
            "slices: cannot be combined");
    refuses("slices: {count: 2}\nbackward: joint\n"
            "uniform: {F: 1, D: 1, W: 1, offload: 1}\n",
            "cannot be combined with 'slices'");
}

/* --- schedules ------------------------------------------------------------ */

/* Two slices with half of the mean in attention: 3/4 and 5/4 of the mean. F 10,
 * B 20: 7.5, 12.5, then 25 and 15. */
static void durations_by_hand(void)
{
    lh_pipeline *p = sliced(1, 1, 2, 0.5, "joint");
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    static const int64_t ends_us[] = {7500, 20000, 45000, 60000};
    CHECK_OK(lh_method_run("auto", p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    uint32_t n = 0;
    const lh_timeline_run *runs = t ? lh_timeline_runs(t, 0, &n) : NULL;
    CHECK_INT(n, 4);
    for (uint32_t i = 0; i < n; i++)
        CHECK_INT(runs[i].end_ns, ends_us[i] * 1000);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Checks a schedule with the verifier: the makespan is that of the evaluator,
 * and at least the lower bound. Returns it in ns. */
static int64_t check_valid(const lh_pipeline *p, const lh_schedule *s)
{
    lh_evaluator *judge = NULL;
    lh_verdict *v = NULL;
    lh_bound bound = {0};
    lh_error err = {0};
    int64_t ns = 0;
    CHECK_OK(lh_evaluator_make(p, NULL, &judge, &err), err);
    CHECK_OK(lh_evaluator_run(judge, s, &ns, &err), err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    CHECK(v && lh_verdict_valid(v));
    CHECK_INT(v ? lh_verdict_makespan(v) : -1, ns);
    CHECK(bound.ns <= ns);
    lh_verdict_free(v);
    lh_evaluator_free(judge);
    return ns;
}

static void orders_equal_the_authors(void)
{
    FILE *file = fopen(TEST_DATA "/zero_bubble/seq1f1b.txt", "r");
    static char line[1 << 12];
    unsigned devices, n, k, n_cases = 0;
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file)) {
        CHECK_INT(sscanf(line, "seq1f1b %u %u %u", &devices, &n, &k), 3);
        lh_pipeline *p = sliced(devices, n, k, 0.3, "joint");
        lh_schedule *s = NULL;
        lh_error err = {0};
        char *text = NULL, *at;
        CHECK_OK(lh_method_run("seq1f1b", p, NULL, &s, NULL, &err), err);
        CHECK_OK(lh_schedule_format(s, &text, NULL, &err), err);
        at = text;
        for (unsigned d = 0; text && d < devices; d++) {
            CHECK(fgets(line, sizeof line, file));
            CHECK_MSG(strncmp(at, line, strlen(line)) == 0, "not %s", line);
            at = strchr(at, '\n') + 1;
        }
        check_valid(p, s);
        lh_text_free(text);
        lh_schedule_free(s);
        lh_pipeline_free(p);
        n_cases++;
    }
    CHECK_INT(n_cases, 7);
    if (file)
        fclose(file);
}

/* Simulator and verifier reject slices in the wrong order. */
static void order_of_slices_is_required(void)
{
    static const char *const rows[] = {"0F1,0F0,0B1,0B0\n", "0F0,0F1,0B0,0B1\n",
                                       "0F0,0F1,0I0,0I1,0W0,0W1\n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_pipeline *p = sliced(1, 1, 2, 0.5, "split");
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        lh_verdict *v = NULL;
        lh_error err = {0};
        CHECK_OK(lh_schedule_parse(rows[i], strlen(rows[i]), "s", &s, &err),
                 err);
        CHECK_INT(lh_simulate(p, s, NULL, &t, &err), LH_EINFEASIBLE);
        CHECK_HAS(err.text, i ? "next slice" : "previous slice");
        CHECK_OK(lh_check(p, s, &v, &err), err);
        CHECK(v && !lh_verdict_valid(v));
        lh_verdict_free(v);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* --- all orders ----------------------------------------------------------- */

enum { SEQUENCES = 2, SLICES = 2, N = SEQUENCES * SLICES };

/* Every order of a device: two sequences' chains F0 F1 B1 B0, merged as the
 * bits of `merge` say. False: not four passes of each. */
static bool merge_chains(uint32_t device, uint32_t merge, lh_pass *order)
{
    static const uint8_t kinds[] = {LH_F, LH_F, LH_B, LH_B};
    static const uint32_t slices[] = {0, 1, 1, 0};
    uint32_t done[SEQUENCES] = {0};
    for (uint32_t i = 0; i < 2 * N; i++) {
        uint32_t q = merge >> i & 1;
        if (done[q] == 2 * SLICES)
            return false;
        order[i] = (lh_pass){.chunk = device,
                             .microbatch = q * SLICES + slices[done[q]],
                             .n_parts = 1,
                             .kind = kinds[done[q]]};
        done[q]++;
    }
    return true;
}

/* The least makespan of all orders of two devices, in ns. */
static int64_t enumerate(const lh_pipeline *p)
{
    lh_pass first[2 * N], second[2 * N];
    const lh_pass *orders[] = {first, second};
    const uint32_t counts[] = {2 * N, 2 * N};
    lh_evaluator *judge = NULL;
    lh_error err = {0};
    int64_t least = INT64_MAX, ns;
    uint32_t n_valid = 0;
    CHECK_OK(lh_evaluator_make(p, NULL, &judge, &err), err);
    for (uint32_t a = 0; a < 1u << 2 * N; a++)
        for (uint32_t b = 0; merge_chains(0, a, first) && b < 1u << 2 * N;
             b++) {
            lh_schedule *s = NULL;
            if (!merge_chains(1, b, second))
                continue;
            CHECK_OK(lh_schedule_make(2, orders, counts, 0, NULL, &s, &err),
                     err);
            if (lh_evaluator_run(judge, s, &ns, &err) == LH_OK) {
                least = ns < least ? ns : least;
                if (n_valid++ % 97 == 0)
                    CHECK_INT(check_valid(p, s), ns);
            }
            lh_schedule_free(s);
        }
    lh_evaluator_free(judge);
    CHECK(n_valid > 1000);
    return least;
}

/* The bound is at most the optimum. Without links Seq1F1B is optimal if the
 * slices take equally long. */
static void bounds_hold_for_all_orders(void)
{
    for (int i = 0; i < 3; i++) {
        lh_pipeline *p = sliced(2, SEQUENCES, SLICES, 0.5 * i, "joint");
        lh_schedule *s = NULL;
        lh_bound bound = {0};
        lh_error err = {0};
        int64_t least = enumerate(p);
        CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
        CHECK_OK(lh_method_run("seq1f1b", p, NULL, &s, NULL, &err), err);
        CHECK(bound.ns <= least);
        int64_t ns = check_valid(p, s);
        CHECK_MSG(i ? least < ns : least == ns && bound.ns == ns,
                  "%" PRId64 " ns, at least %" PRId64, ns, least);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* --- other parts ---------------------------------------------------------- */

static void others_name_the_method(void)
{
    lh_pipeline *p = sliced(2, 2, 2, 0.5, "split");
    lh_pipeline *whole = uniform_make(
        (uniform){.placement = "ud", .devices = 2, .microbatches = 4, .f = 1});
    lh_schedule *s = NULL, *none = NULL;
    lh_solution found = {0};
    char *text = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run("auto", p, NULL, &s, NULL, &err), err);
    CHECK_INT(lh_method_run("greedy", p, NULL, &none, NULL, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "use seq1f1b");
    CHECK_INT(lh_solve(p, NULL, &found, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "seq1f1b");
    CHECK_INT(lh_export_pytorch(p, s, LH_PYTORCH_COMPUTE_ONLY, &text, NULL,
                                NULL, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "slices");
    CHECK_INT(lh_method_run("seq1f1b", whole, NULL, &none, NULL, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "needs sequences in slices");
    lh_schedule_free(s);
    lh_pipeline_free(whole);
    lh_pipeline_free(p);
}

/* --- plans ---------------------------------------------------------------- */

/* 512K tokens on 56 GPUs: Llama 3 70B. */
static const char long_job[] =
    "longhaul: job/1\n"
    "model: llama3-70b\n"
    "training: {global_batch: 8, sequence: 524288, zero: 1, recompute: full}\n"
    "cluster:\n"
    "  gpu: h100-sxm\n"
    "  gpus_per_node: 8\n"
    "  node_link: {gbps: 3600, latency_us: 3}\n"
    "  fabric: {gbps: 400, latency_us: 10}\n"
    "  datacenters: [{name: west, nodes: 7}]\n";

/* Plans long_job with this layout; NULL: refused, and *err has why. */
static lh_plan *plan_long(const char *layout, lh_error *err)
{
    const lh_plan_options quick = {.size = sizeof quick, .quick = true};
    char text[2048];
    lh_job *job = NULL;
    lh_plan *plan = NULL;
    job_text(text, sizeof text, long_job, "%s", layout);
    lh_status status = lh_job_parse(text, strlen(text), "job", NULL, &job, err);
    if (status == LH_OK)
        status = lh_plan_make(job, &quick, &plan, err);
    CHECK((status == LH_OK) == (plan != NULL));
    lh_job_free(job);
    return plan;
}

/* Whole sequences do not fit, and the error names slices; 16 slices fit. */
static void long_sequences_fit_in_slices(void)
{
    lh_error err = {0};
    lh_plan *plan = plan_long(
        "layout: {tensor: 8, pipeline: 7, chunks_per_device: 1}\n", &err);
    CHECK(plan == NULL);
    CHECK_HAS(err.text, "or layout.slices: 16");
    plan = plan_long("layout: {tensor: 8, pipeline: 7, slices: 16, "
                     "framework: longhaul}\n",
                     &err);
    CHECK_MSG(plan != NULL, "%s", err.text);
    if (plan) {
        lh_pipeline_desc d = {.size = sizeof d};
        CHECK_OK(lh_pipeline_describe(plan->pipeline, &d, &err), err);
        CHECK_STR(plan->best.layout.schedule, "seq1f1b");
        CHECK_INT(d.n_slices, 16);
        CHECK_INT(d.n_microbatches, 8 * 16);
        CHECK(d.slice_attention > 0.5 && d.slice_attention < 1);
        CHECK(plan->best.lower_bound_ns <= plan->best.iteration_ns);
        CHECK(plan->best.peak_memory_bytes <= plan->best.memory_limit_bytes);
        check_valid(plan->pipeline, plan->schedule);
        plan_reads_back(plan);
    }
    lh_plan_free(plan);
}

/* Slices together take as long as the whole sequence, except for kernels'
 * launches; each needs its share of the activations, and its keys and values:
 * 2 x 8 heads x 128 x 2 bytes a token and layer, on one of 8 GPUs. */
static void slices_share_the_cost(void)
{
    enum { K = 8, TOKENS = 524288 };
    lh_pipeline *pipes[2] = {NULL, NULL};
    lh_pipeline_desc d[2];
    lh_error err = {0};
    for (int i = 0; i < 2; i++) {
        char text[2048];
        lh_job *job = NULL;
        job_text(text, sizeof text, long_job, "layout: {tensor: 8%s}\n",
                 i ? ", slices: 8" : "");
        CHECK_OK(lh_job_parse(text, strlen(text), "job", NULL, &job, &err),
                 err);
        const lh_layout layout = {.tensor = 8,
                                  .context = 1,
                                  .expert = 1,
                                  .pipeline = 7,
                                  .data = 1,
                                  .micro_batch = 1,
                                  .chunks_per_device = 1};
        if (job)
            CHECK_OK(lh_plan_pipeline(job, &layout, LH_PLACEMENT_UD,
                                      LH_RECOMPUTE_FULL, &pipes[i], NULL, &err),
                     err);
        d[i].size = sizeof d[i];
        if (pipes[i])
            CHECK_OK(lh_pipeline_describe(pipes[i], &d[i], &err), err);
        lh_job_free(job);
    }
    if (pipes[0] && pipes[1]) {
        const lh_chunk *whole = &d[0].chunks[3], *slice = &d[1].chunks[3];
        double f = K * (double)slice->f_ns / (double)whole->f_ns;
        double d_ratio = K * (double)slice->d_ns / (double)whole->d_ns;
        CHECK_MSG(f > 0.99 && f < 1.02, "F: %g of the whole", f);
        CHECK_MSG(d_ratio > 0.99 && d_ratio < 1.02, "D: %g", d_ratio);
        uint32_t layers = 12; /* of 80 on 7 devices, in the middle */
        double kv = 2.0 * 128 * 2 * TOKENS / K * layers;
        CHECK_NEAR((double)slice->mem_f, (double)whole->mem_f / K + kv,
                   0.001 * kv);
        CHECK_INT(d[1].n_microbatches, K * d[0].n_microbatches);
    }
    for (int i = 0; i < 2; i++)
        lh_pipeline_free(pipes[i]);
}

static bool stop_at_once(void *context, uint32_t done, uint32_t total,
                         int64_t best_ns)
{
    (void)context;
    (void)done;
    (void)total;
    (void)best_ns;
    return true;
}

/* Few sequences on four stages: slices are faster than whole sequences, until
 * kernels are too short. The plan has the number, and equals the plan of a job
 * that gives it. A search that is stopped tries no further number. */
static void planner_chooses_slices(void)
{
    static const char text[] =
        "  datacenters: [{name: west, nodes: 4}]\n"
        "  links: []\n"
        "training: {global_batch: 4, sequence: 32768}\n"
        "model: {layers: 4, hidden: 2048, ffn: 8192, heads: 8, vocab: 1000}\n"
        "layout: {tensor: 1, context: 1, data: 1, pipeline: 4, micro_batch: 1, "
        "chunks_per_device: 1, slices: %s}\n";
    lh_error err = {0};
    lh_plan *plan = NULL, *same = NULL;
    char number[8], *written = NULL;
    lh_job *job = job_with(JOB_SMALL, text, "auto");
    CHECK_OK(lh_job_format(job, &written, NULL, &err), err);
    CHECK_HAS(written, "\"slices\": \"auto\"");
    CHECK_OK(lh_plan_make(job, NULL, &plan, &err), err);
    uint32_t k = plan ? plan->job->layout.slices : 0;
    CHECK_MSG(k > 2 && k < 128, "%u slices", (unsigned)k);
    for (uint32_t i = k / 2; plan && i <= 2 * k; i *= 2) {
        lh_plan *other = NULL;
        snprintf(number, sizeof number, "%u", (unsigned)i);
        lh_job *given = job_with(JOB_SMALL, text, number);
        CHECK_OK(lh_plan_make(given, NULL, &other, &err), err);
        if (i == k)
            same = other;
        else
            CHECK(other && other->best.iteration_ns > plan->best.iteration_ns);
        if (i != k)
            lh_plan_free(other);
        lh_job_free(given);
    }
    CHECK(same && strcmp(same->input_hash, plan->input_hash) == 0 &&
          same->best.iteration_ns == plan->best.iteration_ns);
    if (plan)
        plan_reads_back(plan);
    const lh_plan_options cheap = {.size = sizeof cheap,
                                   .objective = LH_PLAN_CHEAPEST};
    lh_plan *none = NULL;
    CHECK_INT(lh_plan_make(job, &cheap, &none, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "layout.slices: auto");
    const lh_plan_options front = {.size = sizeof front, .pareto_front = true};
    CHECK_INT(lh_plan_make(job, &front, &none, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "Pareto front");
    const lh_plan_options stopped = {.size = sizeof stopped,
                                     .progress = stop_at_once};
    CHECK_OK(lh_plan_make(job, &stopped, &none, &err), err);
    CHECK(none && none->job->layout.slices < k);
    lh_plan_free(none);
    none = NULL;
    lh_pipeline *p = NULL;
    if (plan)
        CHECK_INT(lh_plan_pipeline(job, &plan->best.layout, LH_PLACEMENT_UD,
                                   LH_RECOMPUTE_NONE, &p, NULL, &err),
                  LH_EINVAL);
    CHECK_HAS(err.text, "layout.slices of the job is auto");
    lh_job_free(job);
    job = job_with(JOB_SMALL, text, "auto, schedule: 1f1b");
    CHECK_INT(lh_plan_make(job, NULL, &none, &err), LH_EINPUT);
    CHECK_HAS(err.text, "use seq1f1b");
    lh_job_free(job);
    job = job_with(JOB_SMALL, text, "auto, schedule: seq1f1b");
    CHECK_OK(lh_plan_make(job, NULL, &none, &err), err);
    CHECK(none && none->job->layout.slices == k);
    lh_text_free(written);
    lh_plan_free(none);
    lh_plan_free(plan);
    lh_plan_free(same);
    lh_job_free(job);
}

static void jobs_refuse_slices(void)
{
    static const char *const cases[][2] = {
        {"layout: {slices: many}\n", "or auto"},
        {"layout: {slices: 7}\n", "7 slices do not divide"},
        {"layout: {slices: 4, schedule: 1f1b}\n", "use seq1f1b"},
        {"layout: {slices: 4, schedule: optimal}\n", "use seq1f1b"},
        {"layout: {schedule: seq1f1b}\n", "set layout.slices"},
        {"layout: {slices: 4, framework: megatron}\n",
         "does not cut sequences"},
        {"model: mixtral-8x7b\nlayout: {slices: 4}\n", "dense models"},
        {"framework: {overlap: {F+B: 0.9}}\nlayout: {slices: 4}\n",
         "cannot be combined"},
        {"layout: {slices: 4, context: 2, tensor: 4, pipeline: 7}\n",
         "context parallelism of sliced sequences"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_error err = {0};
        lh_plan *plan = plan_long(cases[i][0], &err);
        CHECK(plan == NULL);
        CHECK_HAS(err.text, cases[i][1]);
        lh_plan_free(plan);
    }
}

int main(void)
{
    RUN(is_read_and_written);
    RUN(durations_by_hand);
    RUN(orders_equal_the_authors);
    RUN(order_of_slices_is_required);
    RUN(bounds_hold_for_all_orders);
    RUN(others_name_the_method);
    RUN(long_sequences_fit_in_slices);
    RUN(slices_share_the_cost);
    RUN(planner_chooses_slices);
    RUN(jobs_refuse_slices);
    return test_summary();
}
