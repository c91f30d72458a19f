/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines with two directions (placement bd) and overlapped passes: the
 * format, the orders of DualPipe and DualPipeV compared with those of their
 * authors' code (tests/data/dualpipe/SOURCE.md), Chimera's order by hand, and
 * the published bubble formulas. */
#include "jobs.h"
#include "plans.h"
#include "report/comparison/compare_internal.h"
#include "uniform.h"

#include <longhaul/check.h>
#include <longhaul/experimental/certificate.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>
#include <longhaul/export.h>
#include <longhaul/scheduler.h>

/* --- format --------------------------------------------------------------- */

static lh_pipeline *parse(const char *text)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_parse(text, strlen(text), "p", &p, &err), err);
    return p;
}

static void placement_is_expanded(void)
{
    lh_pipeline *p = parse("longhaul: pipeline/1\ntime_unit: ns\n"
                           "microbatches: 3\ndevices: 4\n"
                           "overlap: {F+B: 0.85}\n"
                           "uniform: {placement: bd, F: 10, D: 20, W: 30}\n"
                           "datacenters: {count: 2, latency: 5}\n");
    lh_pipeline_desc d = {.size = sizeof d};
    lh_error err = {0};
    char *text = NULL, *again = NULL;
    CHECK_OK(lh_pipeline_describe(p, &d, &err), err);
    CHECK(d.bidirectional);
    CHECK_NEAR(d.overlap_f_b, 0.85, 0);
    CHECK_INT(d.n_chunks, 8);
    CHECK_INT(d.n_microbatches, 3);
    for (uint32_t c = 0; c < d.n_chunks; c++) {
        CHECK_INT(d.chunks[c].device, c < 4 ? c : 7 - c);
        CHECK_INT(d.chunks[c].f_ns, 10); /* not half: one of two models */
        CHECK_INT(d.chunks[c].w_ns, 30);
    }
    CHECK_INT(d.n_links, 2); /* 1 to 2 and back; none between the directions */
    CHECK_OK(lh_pipeline_format(p, &text, NULL, &err), err);
    lh_pipeline *copy = parse(text);
    CHECK_OK(lh_pipeline_format(copy, &again, NULL, &err), err);
    CHECK_STR(again, text);
    lh_text_free(text);
    lh_text_free(again);
    lh_pipeline_free(copy);
    lh_pipeline_free(p);
}

static void rejects(const char *more, const char *why)
{
    char text[512];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 2\n"
             "devices: 2\n%s\n",
             more);
    CHECK_INT(lh_pipeline_parse(text, strlen(text), "p", &p, &err), LH_EINPUT);
    CHECK_HAS(err.text, why);
    CHECK_HAS(err.text, "p:");
    lh_pipeline_free(p);
}

static void contradictions_are_named(void)
{
#define UNIFORM(more) "uniform: {placement: bd" more ", F: 1, D: 1, W: 1}\n"
    rejects(UNIFORM(", chunks_per_device: 4"), "placement bd requires 2");
    rejects("bidirectional: true\n" UNIFORM(""), "keep one");
    rejects("bidirectional: true\n"
            "chunks: [{device: 0, F: 1, D: 1, W: 1}]",
            "cannot be two copies of a model");
    rejects("overlap: {F+B: 0}\n" UNIFORM(""), "must be above 0");
    rejects("overlap: {F+B: 1.01}\n" UNIFORM(""), "F+B");
    rejects("overlap: {}\n" UNIFORM(""), "F+B");
    rejects("overlap: {F+B: 0.9}\nbackward: joint\n" UNIFORM(", offload: 1"),
            "cannot be combined with 'overlap'");
    rejects("data_parallel: {prefetch: 0, chunks: [{chunk: 0, all_gather: 1}]}"
            "\n" UNIFORM(""),
            "prefetch requires one direction");
    rejects("data_parallel: {operations: [{chunk: 0, all_gather: 1, "
            "launch: 0F0}]}\n" UNIFORM(""),
            "require one direction");
#undef UNIFORM
}

/* Copies to and from host memory, and full send queues, could separate the
 * passes of a pair. */
static void separated_pairs_are_rejected(void)
{
    lh_pipeline *p = uniform_make((uniform){.placement = "wave",
                                            .devices = 2,
                                            .microbatches = 4,
                                            .f = 1,
                                            .d = 1,
                                            .w = 1,
                                            .memory = 8,
                                            .more = "overlap: {F+B: 0.9}\n"});
    lh_pipeline *roomy = NULL;
    const lh_sim_options coupled = {.size = sizeof coupled, .coupled_queue = 1};
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    CHECK_INT(lh_pipeline_with_host(p, 4, &roomy, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "host memory cannot be combined with overlapped");
    CHECK_OK(lh_method_run("dualpipev", p, NULL, &s, NULL, &err), err);
    CHECK_INT(lh_simulate(p, s, &coupled, &t, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "coupled sends cannot be combined with overlapped");
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void pairs_are_cells(void)
{
    static const char csv[] = "0F0,(0F1;1B0)OVERLAP_F_B,0B0\n";
    lh_schedule *s = NULL;
    lh_error err = {0};
    char *text = NULL;
    uint32_t n;
    CHECK_OK(lh_schedule_parse(csv, strlen(csv), "s", &s, &err), err);
    const lh_pass *order = lh_schedule_order(s, 0, &n);
    CHECK_INT(n, 4);
    CHECK(!order[0].overlapped && order[1].overlapped && order[2].overlapped);
    CHECK_OK(lh_schedule_format(s, &text, NULL, &err), err);
    CHECK_STR(text, csv);
    lh_text_free(text);
    lh_schedule_free(s);
    static const char *const wrong[] = {
        "(1B0;0F1)OVERLAP_F_B\n", "(0F1)OVERLAP_F_B\n",
        "(0F1;1I0)OVERLAP_F_B\n", "(0F1;1B0;1B1)OVERLAP_F_B\n",
        "(0F1;1B0;)OVERLAP_F_B\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s = NULL;
        CHECK_INT(lh_schedule_parse(wrong[i], strlen(wrong[i]), "s", &s, &err),
                  LH_EINPUT);
        CHECK_HAS(err.text, "overlapped pair");
        lh_schedule_free(s);
    }
    const lh_pass alone = {.n_parts = 1, .kind = LH_F, .overlapped = true};
    const lh_pass *orders[] = {&alone};
    CHECK_INT(lh_schedule_make(1, orders, (uint32_t[]){1}, 0, NULL, &s, &err),
              LH_EINVAL);
    CHECK_HAS(err.text, "0F0");
    /* Messages are no pairs, also if they name a pass of one. */
    const lh_link_order messages = {"0-1", 1, &alone};
    CHECK_OK(
        lh_schedule_make(1, orders, (uint32_t[]){0}, 1, &messages, &s, &err),
        err);
    CHECK(!lh_schedule_link_order(s, 0)->passes[0].overlapped);
    lh_schedule_free(s);
}

/* --- orders --------------------------------------------------------------- */

static lh_pipeline *two_way(const char *placement, unsigned devices, unsigned n,
                            const char *more)
{
    return uniform_make((uniform){.placement = placement,
                                  .devices = devices,
                                  .microbatches = n,
                                  .f = 2,
                                  .d = 2,
                                  .w = 2,
                                  .more = more});
}

static lh_schedule *make(const char *method, const lh_pipeline *p)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_OK(lh_method_run(method, p, NULL, &s, NULL, &err), err);
    return s;
}

/* Compares a schedule's rows with the next lines of the file. */
static void compare_rows(const lh_schedule *s, unsigned devices, FILE *file,
                         const char *what)
{
    static char line[1 << 16];
    char *text = NULL, *at;
    lh_error err = {0};
    CHECK_OK(lh_schedule_format(s, &text, NULL, &err), err);
    at = text;
    for (unsigned d = 0; text && d < devices; d++) {
        CHECK(fgets(line, sizeof line, file));
        size_t len = strlen(line);
        CHECK_MSG(strncmp(at, line, len) == 0, "%s, device %u: not\n%s", what,
                  d, line);
        at = strchr(at, '\n') + 1;
    }
    lh_text_free(text);
}

static void orders_equal_the_authors(void)
{
    FILE *file = fopen(TEST_DATA "/dualpipe/orders.txt", "r");
    char line[64], method[16];
    unsigned devices, n, n_cases = 0;
    CHECK(file != NULL);
    while (file && fgets(line, sizeof line, file)) {
        CHECK_INT(sscanf(line, "%15s %u %u", method, &devices, &n), 3);
        lh_pipeline *p =
            two_way(strcmp(method, "dualpipe") ? "wave" : "bd", devices, n, "");
        lh_schedule *s = make(method, p);
        if (s)
            compare_rows(s, devices, file, line);
        lh_schedule_free(s);
        lh_pipeline_free(p);
        n_cases++;
    }
    CHECK_INT(n_cases, 60);
    if (file)
        fclose(file);
}

static void order_equals_pytorch(void)
{
    FILE *file = fopen(TEST_DATA "/pytorch/dualpipev_4rank_10mb.csv", "r");
    lh_pipeline *p = two_way("wave", 4, 10, "");
    lh_schedule *s = make("dualpipev", p);
    CHECK(file != NULL);
    if (file && s)
        compare_rows(s, 4, file, "PyTorch");
    if (file)
        fclose(file);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* Figure 3 of the Chimera paper: one unit of 4 devices and 4 microbatches, of
 * which each direction has two. */
static void chimera_by_hand(void)
{
    static const char one[] = "0F0,0F1,7F0,7B0,7F1,7B1,0B0,0B1\n"
                              "1F0,6F0,1F1,6F1,6B0,1B0,6B1,1B1\n"
                              "5F0,2F0,5F1,2F1,2B0,5B0,2B1,5B1\n"
                              "4F0,4F1,3F0,3B0,3F1,3B1,4B0,4B1\n";
    lh_pipeline *p = two_way("bd", 4, 2, "");
    lh_schedule *s = make("chimera", p);
    lh_error err = {0};
    char *text = NULL;
    CHECK_OK(lh_schedule_format(s, &text, NULL, &err), err);
    CHECK_STR(text, one);
    lh_text_free(text);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void fails(const char *method, const lh_pipeline *p, const char *why)
{
    lh_schedule *s = NULL;
    lh_error err = {0};
    CHECK_INT(lh_method_run(method, p, NULL, &s, NULL, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, why);
    lh_schedule_free(s);
}

static void unsupported_pipelines_are_named(void)
{
    lh_pipeline *odd = two_way("bd", 3, 8, ""), *few = two_way("bd", 4, 3, "");
    lh_pipeline *wave = two_way("wave", 4, 7, "");
    lh_pipeline *single = two_way("bd", 1, 4, "");
    lh_pipeline *joint = two_way("bd", 4, 8, "backward: joint\n");
    fails("dualpipe", odd, "even number of devices");
    fails("chimera", odd, "even number of devices");
    fails("dualpipe", few, "at least 4 microbatches per direction");
    fails("dualpipev", wave, "at least 8 microbatches");
    fails("dualpipe", joint, "backward: split");
    fails("dualpipe", wave,
          "needs placement bd; that of this pipeline is wave");
    fails("chimera", wave, "needs placement bd");
    fails("dualpipev", few,
          "needs placement wave; that of this pipeline is bd");
    fails("dualpipev", single,
          "needs placement wave; that of this pipeline is bd");
    fails("interleaved-zbv", few, "equally many on each");
    fails("steady", few, "two directions");
    fails("look-ahead", few, "two directions");
    lh_pipeline_free(joint);
    lh_pipeline_free(single);
    lh_pipeline_free(wave);
    lh_pipeline_free(few);
    lh_pipeline_free(odd);
}

/* Two directions with a proof; other parts name the methods that support
 * them. */
static void optimal_is_proven(void)
{
    lh_pipeline *p = uniform_make((uniform){.placement = "bd",
                                            .devices = 4,
                                            .microbatches = 4,
                                            .f = 100,
                                            .d = 120,
                                            .w = 80,
                                            .datacenters = 2,
                                            .latency = 60,
                                            .transfer = 20,
                                            .memory = 5});
    lh_pipeline *sums =
        two_way("bd", 4, 4, "data_parallel: [{chunk: 0, reduce_scatter: 1}]\n");
    lh_solve_options o = {.size = sizeof o, .effort = 20000000};
    lh_solution s = {0}, none = {0};
    lh_verdict *v = NULL;
    lh_certificate *c = NULL;
    lh_error err = {0};
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_INT(s.status, LH_SOLVE_OPTIMAL);
    CHECK_OK(lh_check(p, s.schedule, &v, &err), err);
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_makespan(v), s.makespan_ns);
    CHECK_INT(lh_certify(p, &o, &s, &c, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "a certificate does not support two directions");
    CHECK_INT(lh_solve(sums, &o, &none, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "only without data-parallel communication");
    lh_verdict_free(v);
    lh_solution_fini(&s);
    lh_pipeline_free(sums);
    lh_pipeline_free(p);
}

/* Methods without pairs and the search run on pipelines that allow pairs. The
 * search's bound holds for pairs too, and "optimal" takes a method's schedule
 * with pairs if it is shorter. */
static void schedules_without_pairs(void)
{
    lh_pipeline *p = two_way("wave", 4, 8, "overlap: {F+B: 0.8}\n");
    lh_pipeline *plain = two_way("wave", 4, 8, "");
    static const char *const methods[] = {"steady", "look-ahead", "zb-v"};
    lh_solve_options o = {.size = sizeof o, .effort = 20000};
    lh_solution s = {0}, alone = {0};
    lh_scheduler_result best = {0}, pairs = {0};
    lh_verdict *v = NULL;
    lh_error err = {0};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        lh_schedule_free(make(methods[i], p));
    CHECK_OK(lh_solve(plain, &o, &alone, &err), err);
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK_INT(s.makespan_ns, alone.makespan_ns);
    CHECK(s.bound_ns < alone.bound_ns && s.status == LH_SOLVE_FEASIBLE);
    CHECK_OK(lh_scheduler_run("optimal", p, NULL, &best, &err), err);
    CHECK_OK(lh_scheduler_run("dualpipev", p, NULL, &pairs, &err), err);
    CHECK_OK(lh_check(p, best.schedule, &v, &err), err);
    CHECK(v && lh_verdict_makespan(v) < s.makespan_ns);
    CHECK(v && best.bound_ns <= lh_verdict_makespan(v));
    lh_verdict_free(v);
    lh_scheduler_result_fini(&pairs);
    lh_scheduler_result_fini(&best);
    lh_solution_fini(&alone);
    lh_solution_fini(&s);
    lh_pipeline_free(plain);
    lh_pipeline_free(p);
}

/* --- plans ---------------------------------------------------------------- */

/* Plans 8 stages with 16 microbatches; `framework`: a line of the job. */
static lh_plan *plan_stages(const char *framework)
{
    static const char base[] =
        "longhaul: job/1\n"
        "model: {layers: 16, hidden: 512, ffn: 2048, heads: 8, vocab: 64}\n"
        "training: {global_batch: 16, sequence: 512}\n"
        "cluster:\n"
        "  gpu: h100-sxm\n"
        "  gpus_per_node: 8\n"
        "  node_link: {gbps: 3600, latency_us: 3}\n"
        "  fabric: {gbps: 400, latency_us: 8}\n"
        "  datacenters: [{name: west, nodes: 1}]\n"
        "layout: {tensor: 1, pipeline: 8, micro_batch: 1}\n";
    return plan_of_job(job_with(base, "%s", framework));
}

/* With overlapped passes a plan takes DualPipeV and is faster by up to the
 * factor; its parts add up, and it reads back. */
static void plans_choose_pairs(void)
{
    lh_plan *without = plan_stages("");
    lh_plan *with = plan_stages("framework: {overlap: {F+B: 0.85}}\n");
    if (with && without) {
        const lh_plan_breakdown *b = with->breakdown;
        CHECK_STR(with->best.layout.schedule, "dualpipev");
        CHECK(strcmp(without->best.layout.schedule, "dualpipev") != 0);
        CHECK(with->best.iteration_ns < without->best.iteration_ns);
        CHECK((double)with->best.makespan_ns >
              0.85 * (double)without->best.makespan_ns);
        CHECK(with->best.lower_bound_ns <= with->best.iteration_ns);
        CHECK(with->best.bubble_ratio > 0 && b->bubble_ns > 0);
        plan_reads_back(with);
    }
    lh_plan_free(with);
    lh_plan_free(without);
}

static void jobs_refuse_wrong_factors(void)
{
    static const char *const cases[][2] = {
        {"framework: {overlap: {F+B: 0}}\n", "F+B: must be above 0"},
        {"framework: {overlap: {F+B: 1.1}}\n", "framework.overlap.F+B"},
        {"framework: {overlap: {F+B: 0.9}, preset: megatron}\n",
         "instead of framework.overlap.F+B"},
        {"framework: {overlap: {F+B: 0.9}}\nlayout: {framework: longhaul}\n",
         "remove framework.overlap.F+B"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[8192];
        lh_job *job = NULL;
        lh_plan *plan = NULL;
        lh_error err = {0};
        job_text(text, sizeof text, JOB_SMALL, "%s", cases[i][0]);
        lh_status status =
            lh_job_parse(text, strlen(text), "job", NULL, &job, &err);
        if (status == LH_OK)
            status = lh_plan_make(job, NULL, &plan, &err);
        CHECK(status != LH_OK);
        CHECK_HAS(err.text, cases[i][1]);
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* PyTorch would connect the last chunk of one direction with the first of the
 * other. Its pairs are single actions, so no pass of a pair can launch
 * operations. */
static void exports_to_pytorch_are_rejected(void)
{
    static const lh_pytorch_form forms[] = {LH_PYTORCH_COMPUTE_ONLY,
                                            LH_PYTORCH_COMPUTE_COMMS};
    lh_pipeline *p = two_way("bd", 2, 2, "");
    lh_pipeline *launching =
        two_way("wave", 2, 4,
                "data_parallel: {operations: [{chunk: 0, all_gather: 1, "
                "launch: 0F0}]}\n");
    lh_schedule *s = make("dualpipe", p), *pairs = make("dualpipev", launching);
    lh_error err = {0};
    char *text = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        CHECK_INT(lh_export_pytorch(p, s, forms[i], &text, NULL, NULL, &err),
                  LH_EUNSUPPORTED);
        CHECK_HAS(err.text, "do not support two directions");
    }
    CHECK_INT(lh_export_pytorch(launching, pairs, LH_PYTORCH_COMPUTE_COMMS,
                                &text, NULL, NULL, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "overlapped pair as one action");
    CHECK_OK(lh_export_pytorch(launching, pairs, LH_PYTORCH_COMPUTE_ONLY, &text,
                               NULL, NULL, &err),
             err);
    lh_text_free(text);
    lh_schedule_free(pairs);
    lh_schedule_free(s);
    lh_pipeline_free(launching);
    lh_pipeline_free(p);
}

/* Relative delays are multiples of the same time for both placements: a
 * microbatch of a direction passes one chunk of a device. */
static void forward_time_is_of_one_microbatch(void)
{
    lh_pipeline *bd = two_way("bd", 4, 2, ""),
                *wave = two_way("wave", 4, 4, "");
    CHECK_INT(lhi_compare_forward_ns(bd), 2000000);
    CHECK_INT(lhi_compare_forward_ns(wave), 2000000);
    lh_pipeline_free(wave);
    lh_pipeline_free(bd);
}

/* --- formulas ------------------------------------------------------------- */

/* Simulates a method's schedule and checks it with the verifier; returns the
 * makespan in ms. *idle_ms: sum over all devices; *peak: largest memory. */
static double simulate(const char *method, const lh_pipeline *p,
                       double *idle_ms, int64_t *peak)
{
    lh_schedule *s = make(method, p);
    lh_timeline *t = NULL;
    lh_verdict *v = NULL;
    lh_error err = {0};
    double ms = 0;
    *peak = 0;
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    if (t && v) {
        uint32_t devices = lh_pipeline_n_devices(p);
        ms = (double)lh_timeline_makespan(t) / 1e6;
        *idle_ms = lh_timeline_bubble_ratio(t) * ms * devices;
        for (uint32_t d = 0; d < devices; d++)
            if (lh_timeline_peak_memory(t, d) > *peak)
                *peak = lh_timeline_peak_memory(t, d);
        CHECK(lh_verdict_valid(v));
        CHECK_INT(lh_verdict_makespan(v), lh_timeline_makespan(t));
    }
    lh_verdict_free(v);
    lh_timeline_free(t);
    lh_schedule_free(s);
    return ms;
}

/* DualPipe's README: a bubble of (PP/2 - 1)(F&B + B - 3W) on each device, and
 * PP + 1 activations. It holds exactly for F = D if a pair takes F + B. */
static void dualpipe_has_its_bubble(void)
{
    static const double times[][2] = {{100, 100}, {200, 100}, {100, 40}};
    for (unsigned devices = 2; devices <= 8; devices += 2)
        for (unsigned n = devices; n <= 2 * devices; n += devices / 2)
            for (unsigned i = 0; i < 3; i++) {
                double f = times[i][0], w = times[i][1], b = f + w, idle;
                int64_t peak;
                lh_pipeline *p =
                    uniform_make((uniform){.placement = "bd",
                                           .devices = devices,
                                           .microbatches = n,
                                           .f = f,
                                           .d = f,
                                           .w = w,
                                           .more = "overlap: {F+B: 1}\n"});
                double ms = simulate("dualpipe", p, &idle, &peak);
                double bubble = (devices / 2 - 1) * (f + b + b - 3 * w);
                CHECK_NEAR(idle / devices, bubble, 1e-3);
                CHECK_NEAR(ms, 2 * n * (f + b) + bubble, 1e-3);
                CHECK_INT(peak, devices + 1);
                lh_pipeline_free(p);
            }
}

/* Chimera, table 2: a bubble ratio of (D - 2) / (2N + D - 2) if B takes as long
 * as F: D - 2 idle steps; at most D activations. */
static void chimera_has_its_bubble(void)
{
    for (unsigned devices = 2; devices <= 8; devices += 2)
        for (unsigned units = 1; units <= 3; units++) {
            double idle;
            int64_t peak;
            lh_pipeline *p =
                uniform_make((uniform){.placement = "bd",
                                       .devices = devices,
                                       .microbatches = units * devices / 2,
                                       .f = 10,
                                       .d = 6,
                                       .w = 4,
                                       .more = "backward: joint\n"});
            double ms = simulate("chimera", p, &idle, &peak);
            CHECK_NEAR(ms, 10.0 * (2 * units * devices + devices - 2), 1e-6);
            CHECK_NEAR(idle, 10.0 * devices * (devices - 2), 1e-6);
            CHECK_INT(peak, devices); /* on the first and last device */
            lh_pipeline_free(p);
        }
}

/* A pair saves the same fraction of all its work. */
static void pairs_save_time(void)
{
    lh_pipeline *plain = two_way("wave", 4, 16, "");
    lh_pipeline *pairs = two_way("wave", 4, 16, "overlap: {F+B: 0.8}\n");
    static const char *const methods[] = {"dualpipev", "greedy"};
    for (uint32_t i = 0; i < 2; i++) {
        double idle;
        int64_t peak;
        double before = simulate(methods[i], plain, &idle, &peak);
        double after = simulate(methods[i], pairs, &idle, &peak);
        CHECK_MSG(after < 0.9 * before, "%s: %g ms, %g ms with pairs",
                  methods[i], before, after);
    }
    lh_pipeline_free(pairs);
    lh_pipeline_free(plain);
}

/* The durations of pairs are rounded to the nearest ns, also with a factor just
 * below 1/2, in the simulator and in the verifier. */
static void pairs_are_rounded(void)
{
    static const struct {
        const char *factor;
        int64_t ns, pair_ns; /* of F, and of F and B together */
    } cases[] = {{"0.49999999999999994", 1, 0}, {"0.5", 1, 2}, {"1", 3, 6}};
    static const char csv[] = "0F0,(1F0;0B0)OVERLAP_F_B,1B0\n";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        int64_t ns = cases[i].ns;
        snprintf(text, sizeof text,
                 "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 1\n"
                 "devices: 1\noverlap: {F+B: %s}\n"
                 "uniform: {placement: bd, F: %" PRId64 ", D: %" PRId64
                 ", W: 0}\n",
                 cases[i].factor, ns, ns);
        lh_pipeline *p = parse(text);
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        lh_verdict *v = NULL;
        lh_error err = {0};
        CHECK_OK(lh_schedule_parse(csv, strlen(csv), "s", &s, &err), err);
        CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
        CHECK_OK(lh_check(p, s, &v, &err), err);
        CHECK_INT(lh_timeline_makespan(t), 2 * ns + cases[i].pair_ns);
        CHECK_INT(lh_verdict_makespan(v), 2 * ns + cases[i].pair_ns);
        lh_verdict_free(v);
        lh_timeline_free(t);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
}

/* Greedy with little memory: an F leaves room for one on the other chunk, so no
 * order deadlocks. */
static void greedy_fits_into_memory(void)
{
    for (unsigned devices = 2; devices <= 7; devices++)
        for (unsigned memory = 2; memory <= 2 * devices; memory++)
            for (unsigned i = 0; i < 3; i++) {
                double idle;
                int64_t peak;
                lh_pipeline *p =
                    uniform_make((uniform){.placement = "bd",
                                           .devices = devices,
                                           .microbatches = 6,
                                           .f = 3,
                                           .d = 4,
                                           .w = 2,
                                           .memory = memory,
                                           .more = i == 0   ? ""
                                                   : i == 1 ? "overlap: {F+B: "
                                                              "0.8}\n"
                                                            : "backward: "
                                                              "joint\n"});
                simulate("greedy", p, &idle, &peak);
                CHECK(peak <= memory);
                lh_pipeline_free(p);
            }
}

/* --- gradients of both copies --------------------------------------------- */

/* The model has short passes and its copy long ones: the reduce-scatters of a
 * chunk and its copy start together, after the last passes of both. */
static void copies_are_summed_together(void)
{
    lh_pipeline *p = parse(
        "longhaul: pipeline/1\ntime_unit: ns\nmicrobatches: 1\ndevices: 2\n"
        "backward: joint\nbidirectional: true\nchunks:\n"
        "  - {device: 0, F: 1, D: 1, W: 1}\n"
        "  - {device: 1, F: 2, D: 2, W: 2}\n"
        "  - {device: 1, F: 10, D: 10, W: 10}\n"
        "  - {device: 0, F: 1, D: 1, W: 1}\n"
        "data_parallel:\n"
        "  - {chunk: 0, reduce_scatter: 5}\n"
        "  - {chunk: 2, reduce_scatter: 3}\n");
    static const char csv[] = "0F0,0B0,3F0,3B0\n1F0,1B0,2F0,2B0\n";
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_verdict *v = NULL;
    lh_error err = {0};
    uint32_t n;
    CHECK_OK(lh_schedule_parse(csv, strlen(csv), "s", &s, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lh_check(p, s, &v, &err), err);
    const lh_collective *sums = lh_timeline_collectives(t, &n);
    /* 0F0 0-1, 1F0 1-3, 1B0 3-7, 0B0 7-9; 2F0 7-17, 3F0 17-18, 3B0 18-20, 2B0
     * 20-40: chunk 0 waits for chunk 2, its copy, until 40. */
    CHECK_INT(n, 2);
    CHECK_INT(sums[0].chunk, 0);
    CHECK_INT(sums[0].ready_ns, 40);
    CHECK_INT(sums[0].arrive_ns, 45);
    CHECK_INT(sums[1].chunk, 2);
    CHECK_INT(sums[1].arrive_ns, 43);
    CHECK_INT(lh_timeline_makespan(t), 45);
    CHECK_INT(lh_verdict_makespan(v), 45);
    lh_verdict_free(v);
    lh_timeline_free(t);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(placement_is_expanded);
    RUN(contradictions_are_named);
    RUN(separated_pairs_are_rejected);
    RUN(pairs_are_cells);
    RUN(orders_equal_the_authors);
    RUN(order_equals_pytorch);
    RUN(chimera_by_hand);
    RUN(unsupported_pipelines_are_named);
    RUN(optimal_is_proven);
    RUN(schedules_without_pairs);
    RUN(plans_choose_pairs);
    RUN(jobs_refuse_wrong_factors);
    RUN(exports_to_pytorch_are_rejected);
    RUN(forward_time_is_of_one_microbatch);
    RUN(dualpipe_has_its_bubble);
    RUN(chimera_has_its_bubble);
    RUN(pairs_save_time);
    RUN(pairs_are_rounded);
    RUN(greedy_fits_into_memory);
    RUN(copies_are_summed_together);
    return test_summary();
}
