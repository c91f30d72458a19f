/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
/* Plans under other links: the cost of keeping a plan, and the break-even to
 * another layout, compared with replanning. */
#include "jobs.h"
#include "plans.h"

#include "planner/explain/whatif.h"
#include "planner/layout/equivalence.h"
#include "planner/layout/link_override.h"
#include "planner/search/plan_search.h"

#include <inttypes.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/simulate.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

/* Three datacenters with different links; latencies and rates can be scaled. */
static lh_job *job_of(double latency, double gbps, const char *more)
{
    return job_with(
        JOB_TWO_SITES,
        "  datacenters:\n"
        "   - {name: west, nodes: 1}\n"
        "   - {name: mid-west, nodes: 1}\n"
        "   - {name: east, nodes: 1}\n"
        "  links:\n"
        "   - {between: [west, mid-west], latency_ms: %.12g, gbps: %.12g}\n"
        "   - {between: [west, east], latency_ms: %.12g, gbps: %.12g}\n"
        "   - {between: [mid-west, east], latency_ms: %.12g, gbps: %.12g}\n"
        "model: {layers: 12, hidden: 4096, ffn: 11008, heads: 32, "
        "vocab: 32000}\n"
        "training: {global_batch: 24, sequence: 2048, zero: 1, "
        "recompute: none}\n"
        "%s",
        4 * latency, 100 * gbps, 8 * latency, 100 * gbps, 8 * latency,
        60 * gbps, more);
}

static lh_plan *make(const lh_job *job, const lh_plan_options *options)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, options, &plan, &err), err);
    return plan;
}

#define ALL(quantity, relative, value)                                         \
    {                                                                          \
        LH_ALL_LINKS, LH_ALL_LINKS, quantity, relative, value                  \
    }

/* --- what if -------------------------------------------------------------- */

static void nothing_changes(void)
{
    static const lh_link_change changes[] = {ALL(LH_LINK_LATENCY, true, 1)};
    static const lh_plan_whatif_question same = {"latency=x1", 1, changes};
    lh_plan_options o = {.size = sizeof o,
                         .layout_effort = LITTLE_WORK,
                         .n_questions = 1,
                         .questions = &same};
    lh_job *job = job_of(1, 1, "");
    lh_plan *plan = make(job, &o);
    if (plan) {
        const lh_plan_whatif_answer *a = &plan->answers[0];
        CHECK_INT(plan->n_answers, 1);
        CHECK_STR(a->text, "latency=x1");
        CHECK_INT(a->kept.iteration_ns, plan->best.iteration_ns);
        CHECK_INT(a->kept.makespan_ns, plan->best.makespan_ns);
        CHECK_NEAR(a->kept.tokens_per_s, plan->best.tokens_per_s, 1e-6);
        CHECK_INT(a->best.iteration_ns, plan->best.iteration_ns);
        CHECK(plan->sensitivity == NULL);
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

/* A job with these links in its file gives the same result; the kept plan's
 * time is that of its schedule on its layout there. */
static void links_are_others(void)
{
    static const lh_link_change slow[] = {ALL(LH_LINK_LATENCY, true, 8),
                                          ALL(LH_LINK_BANDWIDTH, true, 0.125)};
    static const lh_link_change set[] = {ALL(LH_LINK_LATENCY, false, 3),
                                         {0, 2, LH_LINK_LOSS, false, 0.5}};
    static const lh_plan_whatif_question questions[] = {{"slow", 2, slow},
                                                        {"set", 2, set}};
    lh_plan_options o = {.size = sizeof o,
                         .layout_effort = LITTLE_WORK,
                         .n_questions = 2,
                         .questions = questions,
                         .partition = LH_PARTITION_EVEN},
                    plain = {.size = sizeof plain,
                             .layout_effort = LITTLE_WORK,
                             .partition = LH_PARTITION_EVEN};
    lh_job *job = job_of(1, 1, ""), *there = job_of(8, 0.125, "");
    lh_plan *plan = make(job, &o), *best = make(there, &plain);
    if (plan && best) {
        const lh_plan_whatif_answer *a = &plan->answers[0];
        lh_pipeline *p = NULL;
        int64_t after_ns = 0, ns = 0;
        lh_error err = {0};
        lh_evaluator *e = NULL;
        CHECK_INT(a->best.iteration_ns < best->best.iteration_ns
                      ? a->kept.iteration_ns
                      : best->best.iteration_ns,
                  a->best.iteration_ns);
        CHECK(a->kept.iteration_ns >= a->best.iteration_ns);
        CHECK(a->kept.iteration_ns > plan->best.iteration_ns);
        CHECK_MSG(plan->best.chunk_layers == NULL && !plan->best.elastic,
                  "the test builds even layouts only");
        CHECK_OK(lh_plan_pipeline(there, &plan->best.layout,
                                  plan->best.placement, plan->best.recompute,
                                  &p, &after_ns, &err),
                 err);
        CHECK_OK(lh_evaluator_make(p, NULL, &e, &err), err);
        CHECK_OK(lh_evaluator_run(e, plan->schedule, &ns, &err), err);
        CHECK_INT(a->kept.iteration_ns, ns + after_ns);
        CHECK(plan->answers[1].best.iteration_ns <=
              plan->answers[1].kept.iteration_ns);
        lh_evaluator_free(e);
        lh_pipeline_free(p);
    }
    lh_plan_free(plan);
    lh_plan_free(best);
    lh_job_free(job);
    lh_job_free(there);
}

static bool stop_at_once(void *context, uint32_t done, uint32_t total,
                         int64_t best_ns)
{
    (void)done, (void)total, (void)best_ns;
    ++*(uint32_t *)context;
    return true;
}

/* A plan found by two searches is evaluated once, and Ctrl-C ends the
 * evaluation. */
static void found_plans_are_kept_once(void)
{
    lh_plan_options o = {.size = sizeof o,
                         .layout_effort = LITTLE_WORK,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN};
    lh_job *jobs[] = {job_of(1, 1, ""), job_of(1, 1, ""), job_of(1, 1, "")};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_found_plans known = {0};
    lh_choice best = {0};
    lh_error err = {0};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(
            lhi_plan_search_again(jobs[i], &o, 1, 0, mem, &known, &best, &err),
            err);
        CHECK_INT(known.n, 1);
    }
    const int64_t ns = best.iteration_ns;
    uint32_t asked = 0;
    best.iteration_ns = INT64_MAX;
    o.progress = stop_at_once;
    o.context = &asked;
    CHECK_OK(lhi_found_plans_improve(&known, &o, jobs[2], mem, &best, &err),
             err);
    CHECK_INT(asked, 1);
    CHECK(best.iteration_ns == INT64_MAX);
    o.progress = NULL;
    CHECK_OK(lhi_found_plans_improve(&known, &o, jobs[2], mem, &best, &err),
             err);
    CHECK_INT(best.iteration_ns, ns);
    lhi_found_plans_fini(&known);
    lhi_arena_free(mem);
    for (int i = 0; i < 3; i++)
        lh_job_free(jobs[i]);
}

/* Searches a plan; *simulated: number of layouts that it simulated. Returns the
 * plan's iteration time. */
static int64_t search_faster_than(const lh_job *job, int64_t cutoff_ns,
                                  uint32_t *simulated)
{
    const lh_plan_options o = {.size = sizeof o,
                               .layout_effort = LITTLE_WORK,
                               .no_optimal = true,
                               .partition = LH_PARTITION_EVEN};
    lhi_arena *mem = lhi_arena_make(0);
    lh_plan plan = {.job = job};
    lh_error err = {0};
    CHECK_OK(lhi_plan_search(job, &o, mem, NULL, cutoff_ns, NULL, &plan, &err),
             err);
    lh_pipeline_free((lh_pipeline *)plan.pipeline);
    lh_schedule_free((lh_schedule *)plan.schedule);
    lhi_arena_free(mem);
    *simulated = plan.n_simulated;
    return plan.best.iteration_ns;
}

/* A search that knows a plan 5 % faster than the best one simulates fewer
 * layouts; one that knows a slower plan still finds the best one. */
static void known_plans_shorten_searches(void)
{
    lh_job *job = job_of(1, 1, "");
    uint32_t all, fewer, least;
    const int64_t best_ns = search_faster_than(job, 0, &all);
    CHECK_INT(search_faster_than(job, best_ns + best_ns / 100, &fewer),
              best_ns);
    search_faster_than(job, best_ns - best_ns / 20, &least);
    CHECK(fewer <= all);
    CHECK_MSG(least < all, "%u of %u", least, all);
    lh_job_free(job);
}

static void refuse(lh_link_change change, const char *says)
{
    lh_plan_whatif_question question = {"q", 1, &change};
    lh_plan_options o = {.size = sizeof o,
                         .n_questions = 1,
                         .quick = true,
                         .questions = &question};
    lh_job *job = job_of(1, 1, "");
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, says);
    lh_job_free(job);
}

static void impossible_links_are_refused(void)
{
    refuse((lh_link_change){0, 1, LH_LINK_LATENCY, false, -1},
           "what if q: latency of the link west>mid-west: -1 is out "
           "of range; from 0 to 3.6e+06 ms");
    refuse((lh_link_change)ALL(LH_LINK_BANDWIDTH, true, 0), "bandwidth of");
    refuse((lh_link_change){0, 1, LH_LINK_LOSS, false, 1}, "0.99");
    refuse((lh_link_change){0, 1, LH_LINK_OVERSUBSCRIPTION, true, 0.5},
           "oversubscription");
    refuse((lh_link_change){0, 1, LH_LINK_LATENCY, false, NAN}, "nan");
    refuse((lh_link_change){0, 0, LH_LINK_LATENCY, false, 1}, "does not have");
    refuse((lh_link_change){0, 3, LH_LINK_LATENCY, false, 1}, "does not have");
    refuse((lh_link_change){0, 1, (lh_link_quantity)9, false, 1},
           "unknown link quantity");
}

/* Measured links scale with the job's changes. */
static void measured_links_scale(void)
{
    static const lh_link_change changes[] = {{0, 1, LH_LINK_LATENCY, false, 12},
                                             ALL(LH_LINK_BANDWIDTH, true, 0.5)};
    lh_job *job =
        job_of(1, 1,
               "profile:\n  longhaul: profile/1\n  gpu: custom\n  links:\n"
               "   - {path: wan, from: west, to: mid-west, alpha_us: 5000, "
               "beta_ns_per_byte: 0.1}\n"
               "   - {path: wan, from: east, to: west, alpha_us: 9000, "
               "beta_ns_per_byte: 0.1}\n");
    lhi_arena *mem = lhi_arena_make(0);
    lh_job there;
    lh_error err = {0};
    if (job && mem) {
        CHECK_OK(lhi_job_override_links(job, changes, 2, mem, &there, &err),
                 err);
        const lh_profile_link *was = job->profile->links,
                              *is = there.profile->links;
        CHECK_INT(is[0].alpha_ns, 3 * was[0].alpha_ns);
        CHECK_NEAR(is[0].beta_ns_per_byte, 2 * was[0].beta_ns_per_byte, 1e-9);
        CHECK_INT(is[1].alpha_ns, was[1].alpha_ns);
        CHECK_NEAR(is[1].beta_ns_per_byte, 2 * was[1].beta_ns_per_byte, 1e-9);
        CHECK_INT(job->wans[1].latency_ns, 4000000);
        CHECK_INT(there.wans[1].latency_ns, 12000000);
        CHECK_INT(there.wans[3].latency_ns, 4000000);
        CHECK_NEAR(there.wans[7].gbps, 30, 1e-9);
    }
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* --- sensitivity ---------------------------------------------------------- */

/* Plans quickly with one quantity of some links scaled, through the job's text,
 * as a user would. `only`: plans its layout alone, not quickly; NULL: all. */
static lh_plan *plan_at(const lh_job *job, const lh_plan_range *r,
                        double factor, const lh_choice *only)
{
    lh_plan_options quick = {.size = sizeof quick,
                             .quick = !only,
                             .no_optimal = true,
                             .layout_effort = only ? LITTLE_WORK : 0};
    lh_link_change changes[] = {{r->from, r->to, r->quantity, true, factor},
                                {r->to, r->from, r->quantity, true, factor}};
    lhi_arena *mem = lhi_arena_make(0);
    lh_job there, *again = NULL;
    char *text = NULL;
    size_t len;
    lh_error err = {0};
    CHECK_OK(lhi_job_override_links(job, changes,
                                    r->from == LH_ALL_LINKS ? 1 : 2, mem,
                                    &there, &err),
             err);
    CHECK_OK(lh_job_format(&there, &text, &len, &err), err);
    CHECK_OK(lh_job_parse(text, len, "there", NULL, &again, &err), err);
    if (only) {
        again->layout = only->layout;
        again->training.zero = only->zero;
        again->training.zero_given = true;
    }
    lh_plan *plan = make(again, &quick);
    lh_text_free(text);
    lh_job_free(again);
    lhi_arena_free(mem);
    return plan;
}

/* Checks that the plan's own layout is no slower than the result, by more than
 * the margin, or that the other one is no slower, and takes the time that it is
 * said to take. */
static void check_at(const lh_job *job, const lh_plan_range *r, double factor,
                     const lh_choice *says, bool own, double margin)
{
    lh_plan *plan = plan_at(job, r, factor, NULL);
    if (plan && own) {
        CHECK_MSG((double)says->iteration_ns <=
                      (1 + margin) * (double)plan->best.iteration_ns,
                  "own %s x%g: %" PRId64 " %" PRId64,
                  lh_link_quantity_name(r->quantity), factor,
                  says->iteration_ns, plan->best.iteration_ns);
    } else if (plan) {
        CHECK_MSG(says->iteration_ns <= plan->best.iteration_ns,
                  "%s x%g: %" PRId64 " ns, but a quick plan takes %" PRId64,
                  lh_link_quantity_name(r->quantity), factor,
                  says->iteration_ns, plan->best.iteration_ns);
        lh_plan *only = plan_at(job, r, factor, says);
        CHECK_MSG(only && only->best.iteration_ns <= says->iteration_ns,
                  "%s x%g: %" PRId64 " ns, but its layout takes %" PRId64,
                  lh_link_quantity_name(r->quantity), factor,
                  says->iteration_ns, only ? only->best.iteration_ns : -1);
        lh_plan_free(only);
    }
    lh_plan_free(plan);
}

/* Returns the iteration time of the plan's layout with one quantity of some
 * links scaled: with its pass order, `kept`, or scheduled anew. */
static int64_t time_own_layout(const lh_job *job, const lh_plan *own,
                               const lh_plan_range *r, double factor,
                               const lh_choice *kept)
{
    lh_plan *plan = plan_at(job, r, factor, &own->best);
    int64_t ns = kept->iteration_ns;
    if (plan && plan->best.iteration_ns < ns)
        ns = plan->best.iteration_ns;
    lh_plan_free(plan);
    return ns;
}

static void check_kept(const lh_job *job, const lh_plan *own,
                       const lh_plan_range *r, double factor)
{
    const lh_link_change changes[] = {
        {r->from, r->to, r->quantity, true, factor},
        {r->to, r->from, r->quantity, true, factor}};
    lhi_arena *mem = lhi_arena_make(0);
    lh_job there;
    lh_choice kept;
    lh_error err;
    lh_plan *plan = plan_at(job, r, factor, NULL);
    CHECK_OK(lhi_job_override_links(job, changes,
                                    r->from == LH_ALL_LINKS ? 1 : 2, mem,
                                    &there, &err),
             err);
    CHECK_OK(lhi_plan_evaluate_on_job(own, &there, mem, &kept, &err), err);
    CHECK(plan);
    if (plan && plan->best.iteration_ns < kept.iteration_ns) {
        const int64_t ns = time_own_layout(job, own, r, factor, &kept);
        CHECK_MSG(ns <= plan->best.iteration_ns,
                  "%s x%g: %" PRId64 " ns with its layout, but %" PRId64 " ns",
                  lh_link_quantity_name(r->quantity), factor, ns,
                  plan->best.iteration_ns);
    }
    lh_plan_free(plan);
    lhi_arena_free(mem);
}

static void check_range(const lh_job *job, const lh_plan *own,
                        const lh_plan_range *r)
{
    const lh_plan_sensitivity *s = own->sensitivity;
    double low = s->min_factor, high = s->max_factor;
    CHECK(r->n_break_evens <= 2);
    for (uint32_t i = 0; i < r->n_break_evens; i++) {
        const lh_plan_break_even *f = &r->break_evens[i];
        bool up = f->factor_below >= 1;
        CHECK(f->factor_below >= s->min_factor &&
              f->factor_above <= s->max_factor);
        CHECK(f->factor_below < f->factor_above);
        CHECK(f->factor_above / f->factor_below <= 1 + s->tolerance);
        CHECK(!lhi_choices_are_equal(&f->below, &f->above));
        CHECK(lhi_choices_are_equal(up ? &f->below : &f->above, &s->reference));
        check_at(job, r, f->factor_below, &f->below, up, s->margin);
        check_at(job, r, f->factor_above, &f->above, !up, s->margin);
        if (up)
            high = f->factor_below;
        else
            low = f->factor_above;
    }
    /* No better layout before the break-even. */
    for (double x = s->min_factor; x <= s->max_factor; x *= 4)
        if (x >= low && x <= high)
            check_kept(job, own, r, x);
}

/* Margins of new plans: at the last factor upwards, and halfway to the last one
 * downwards. */
static void check_ends(const lh_job *job, const lh_plan *own,
                       const lh_plan_range *r)
{
    const lh_plan_sensitivity *s = own->sensitivity;
    double ends[2] = {s->min_factor, s->max_factor};
    for (uint32_t i = 0; i < r->n_break_evens; i++)
        if (r->break_evens[i].factor_below >= 1)
            ends[1] = r->break_evens[i].factor_below;
        else
            ends[0] = r->break_evens[i].factor_above;
    for (int i = 0; i < 2; i++) {
        const double x = i ? ends[i] : sqrt(ends[i]);
        const lh_link_change changes[] = {
            {r->from, r->to, r->quantity, true, x},
            {r->to, r->from, r->quantity, true, x}};
        const uint32_t n = r->from == LH_ALL_LINKS ? 1 : 2;
        const lh_plan_whatif_question question = {"x", n, changes};
        lh_plan_options o = {.size = sizeof o,
                             .no_optimal = true,
                             .layout_effort = LITTLE_WORK / 3,
                             .n_questions = 1,
                             .questions = &question};
        lh_plan *plan = make(job, &o);
        if (plan && lhi_choices_are_equal(&plan->best, &own->best)) {
            const lh_plan_whatif_answer *a = &plan->answers[0];
            const int64_t ns = lhi_choices_are_equal(&a->best, &own->best)
                                   ? a->best.iteration_ns
                                   : time_own_layout(job, own, r, x, &a->kept);
            CHECK_MSG((double)ns <=
                          (1.001 + s->margin) * (double)a->best.iteration_ns,
                      "%s x%g: %.3f over %.3f s",
                      lh_link_quantity_name(r->quantity), x, (double)ns / 1e9,
                      (double)a->best.iteration_ns / 1e9);
        }
        lh_plan_free(plan);
    }
}

static void flips_are_where_they_are_said(bool quick)
{
    lh_plan_options o = {.size = sizeof o,
                         .sensitivity = true,
                         .quick = quick,
                         .range = quick ? 0 : 4,
                         .tolerance = quick ? 0.1 : 0.2,
                         .no_optimal = !quick,
                         .layout_effort = quick ? 0 : LITTLE_WORK / 3};
    lh_job *job = job_of(1, 1, "");
    lh_plan *plan = make(job, &o);
    uint32_t n_flips = 0;
    if (plan && plan->sensitivity) {
        const lh_plan_sensitivity *s = plan->sensitivity;
        CHECK_INT(s->n_ranges, 8);
        CHECK(lhi_choices_are_equal(&s->reference, &plan->best));
        CHECK_INT(s->reference.iteration_ns, plan->best.iteration_ns);
        CHECK_NEAR(s->min_factor * s->max_factor, 1, 0);
        CHECK_NEAR(s->margin, quick ? 0 : 0.01, 0);
        CHECK_NEAR(s->max_factor, quick ? 16 : 4, 0);
        for (uint32_t i = 0; i < s->n_ranges; i++) {
            check_range(job, plan, &s->ranges[i]);
            if (!quick && i < 1) /* all links; the others cost minutes */
                check_ends(job, plan, &s->ranges[i]);
            n_flips += s->ranges[i].n_break_evens;
        }
    }
    CHECK_MSG(n_flips > 0, "no flip: the test shows nothing");
    lh_plan_free(plan);
    lh_job_free(job);
}

static void flips_of_quick_plans(void)
{
    flips_are_where_they_are_said(true);
}

/* A quick search need not find their layout. */
static void flips_of_plans(void)
{
    flips_are_where_they_are_said(false);
}

/* --- the plan's file ------------------------------------------------------ */

static void plans_with_links_round_trip(void)
{
    static const lh_link_change changes[] = {ALL(LH_LINK_LATENCY, true, 4)};
    static const lh_plan_whatif_question question = {"latency=x4", 1, changes};
    lh_plan_options o = {.size = sizeof o,
                         .quick = true,
                         .sensitivity = true,
                         .range = 2,
                         .n_questions = 1,
                         .questions = &question};
    lh_job *job = job_of(1, 1, "");
    char *text = NULL;
    lh_plan *plan = make(job, &o);
    lh_plan *again = plan ? plan_again(plan, &text) : NULL;
    if (again) {
        CHECK_INT(again->n_answers, 1);
        CHECK_INT(again->sensitivity->n_ranges, 8);
        CHECK_INT(again->sensitivity->ranges[0].from, LH_ALL_LINKS);
        CHECK_INT(again->sensitivity->ranges[7].to, 2);
        CHECK_INT(again->answers[0].kept.iteration_ns,
                  plan->answers[0].kept.iteration_ns);
    }
    static const struct {
        const char *from, *to, *says;
    } wrong[] = {
        {"\"keeping_costs\": ", "\"keeping_costs\": 7", "keeping_costs"},
        {"\"quantity\": \"latency\"", "\"quantity\": \"loss\"   ", "quantity"},
        {"\"value\": 8.0", "\"value\": 7.0",
         "does not match these links in the job"},
        {"\"mid-west\",\n     \"east\"", "\"east\",\n     \"east\"    ",
         "two different"},
    };
    for (size_t i = 0; text && i < sizeof wrong / sizeof *wrong; i++) {
        char *broken = strdup(text), *at = strstr(broken, "\"sensitivity\"");
        if (i == 0)
            at = broken;
        at = at ? strstr(at, wrong[i].from) : NULL;
        CHECK_MSG(at != NULL, "no %s in the plan", wrong[i].from);
        if (at) {
            memcpy(at, wrong[i].to, strlen(wrong[i].to));
            plan_refused(broken, wrong[i].says);
        }
        free(broken);
    }
    lh_text_free(text);
    lh_plan_free(plan);
    lh_plan_free(again);
    lh_job_free(job);
}

/* Questions about a plan for 100,000 GPUs share the time given, although one
 * neighbourhood of its search takes longer. The limit leaves room for builds
 * with sanitizers; without deadlines the plan and its sensitivity take 50 s. */
static void questions_end_in_time(void)
{
    const lh_link_change change = {LH_ALL_LINKS, LH_ALL_LINKS, LH_LINK_LATENCY,
                                   false, 70};
    const lh_plan_whatif_question question = {"latency=70", 1, &change};
    lh_plan_options o = {.size = sizeof o,
                         .seconds = 0.5,
                         .questions = &question,
                         .n_questions = 1,
                         .sensitivity = true,
                         .curves = true};
    lh_job *job = NULL;
    lh_plan *plan = NULL;
    lh_error err = {0};
    const clock_t from = clock();
    CHECK_OK(lh_job_read(TEST_DATA "/../../examples/llama3-405b-100k-gpus.yaml",
                         &job, &err),
             err);
    if (job)
        CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    const double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
    CHECK_MSG(seconds < 25, "%.1f s", seconds);
    if (plan) {
        CHECK_INT(plan->n_answers, 1);
        const lh_plan_sensitivity *s = plan->sensitivity;
        CHECK(s && s->n_ranges >= 1);
        for (uint32_t i = 0; s && i < s->n_ranges; i++)
            for (uint32_t k = 0; k < s->ranges[i].n_break_evens; k++) {
                const lh_plan_break_even *b = &s->ranges[i].break_evens[k];
                CHECK(b->factor_above / b->factor_below <=
                      (1 + s->tolerance) * (1 + 1e-9));
            }
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

int main(void)
{
    RUN(nothing_changes);
    RUN(links_are_others);
    RUN(found_plans_are_kept_once);
    RUN(known_plans_shorten_searches);
    RUN(impossible_links_are_refused);
    RUN(measured_links_scale);
    RUN(flips_of_quick_plans);
    RUN(flips_of_plans);
    RUN(plans_with_links_round_trip);
    RUN(questions_end_in_time);
    return test_summary();
}
