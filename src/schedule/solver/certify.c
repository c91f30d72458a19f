/* SPDX-License-Identifier: Apache-2.0 */
/* Proves again that a schedule is optimal and records the proof: by a closed
 * form, by a lattice of pass kinds, by windows, or by the clauses that a search
 * learns. */
#include "base/options.h"
#include "schedule/certificate/certificate.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"
#include "schedule/solver/bound/closed_forms.h"
#include "schedule/solver/bound/kind_lattice.h"
#include "schedule/solver/bound/lattice.h"
#include "schedule/solver/bound/windows.h"
#include "schedule/solver/model/machine_orders.h"
#include "schedule/solver/search/search.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LOG_WORDS = 1 << 26 }; /* clause log limit: 256 MiB */

/* State for one proof. */
typedef struct prover {
    const lh_pipeline *p;
    lh_solve_options o;
    lhi_budget budget;
    lhi_arena *mem;
    lhi_shop *shop;
    lhi_windows *windows;
    lhi_machine_orders *orders;
    lhi_clause_log log;
    lhi_certificate *out;
    const char *why; /* reason why the solver's proof is not recorded */
} prover;

/* --- closed forms --------------------------------------------------------- */

/* Copies the closed-form lower bound into the certificate as proof if it is as
 * large as the solution's; *done: whether it is. */
static lh_status prove_by_closed_form(prover *r, bool *done, lh_error *err)
{
    lh_certificate *c = &r->out->c;
    lh_bound bound;
    LHI_TRY(lhi_compute_closed_form_bound(r->p, &bound, err));
    *done = bound.ns >= c->bound_ns;
    if (!*done)
        return LH_OK;
    lh_bound_term *terms = LHI_NEW(r->out->mem, lh_bound_term, bound.n_terms);
    if (!terms)
        return lhi_fail_nomem(err);
    memcpy(terms, bound.terms, bound.n_terms * sizeof *terms);
    c->kind = LH_PROOF_CLOSED_FORM;
    c->form = bound.kind;
    c->device = bound.device;
    c->terms = terms;
    c->n_terms = bound.n_terms;
    if (bound.resource != LH_NONE)
        c->link =
            lhi_arena_strdup(r->out->mem, r->p->resource_names[bound.resource]);
    return c->link ? LH_OK : lhi_fail_nomem(err);
}

/* --- pass kinds ----------------------------------------------------------- */

/* Tries to prove by a device's lattice of pass kinds that no schedule meets the
 * deadline bound - 1; *done: whether it succeeded. Heads and tails take at most
 * half of the effort. */
static lh_status prove_by_pass_kinds(prover *r, bool *done, lh_error *err)
{
    const lhi_shop *s = r->shop;
    const int64_t deadline =
        lhi_shop_get_deadline(s, r->out->c.refuted_ns / s->unit_ns);
    lhi_heads heads = {0};
    for (uint32_t i = 0; i < s->n_machines && !r->budget.stop; i++) {
        const uint32_t m = lhi_kind_lattice_pick_machine(s, i);
        bool possible = true;
        if (!lhi_kind_lattice_is_applicable(s, m, r->o.memory))
            continue;
        if (!heads.head)
            LHI_TRY(lhi_heads_make(
                s, lhi_budget_get_remaining(&r->budget, UINT64_MAX) / 2,
                &r->budget, r->mem, &heads, err));
        LHI_TRY(lhi_kind_lattice_check(s, &heads, m, deadline, &r->budget,
                                       r->mem, &possible, err));
        if (possible)
            continue;
        r->out->c.kind = LH_PROOF_PASS_KINDS;
        r->out->c.device = s->machines[m].index;
        *done = true;
        return LH_OK;
    }
    return LH_OK;
}

/* --- windows -------------------------------------------------------------- */

/* Returns the pass kind of a stream (operations in fixed order); for messages
 * that of their producer. */
static uint8_t get_kind(const lhi_shop *s, const lhi_stream *t)
{
    switch (t->kind) {
    case LHI_F:
    case LHI_MESSAGE_F:
        return LH_F;
    case LHI_W:
        return LH_W;
    default:
        return s->p->joint ? LH_B : LH_D;
    }
}

/* Checks whether a stream (operations in fixed order) of the job shop consists
 * of messages, not of passes. */
static bool is_message(const lhi_stream *t)
{
    return t->kind == LHI_MESSAGE_F || t->kind == LHI_MESSAGE_D;
}

/* Checks whether machine m's operations, considered without other machines,
 * have no order within their time windows. */
static bool is_infeasible(lhi_windows *w, uint32_t m, lhi_budget *budget)
{
    const lhi_shop *s = w->shop;
    const lhi_machine *k = &s->machines[m];
    for (uint32_t i = 0; i < k->n_streams; i++) {
        const lhi_stream *t = &s->streams[k->first_stream + i];
        for (uint32_t o = t->first; o < t->first + t->count; o++)
            if (w->r[o] + s->time[o] > w->e[o])
                return true;
    }
    const lhi_lattice *l = w->pruned[m] ? w->pruned[m] : w->lattices[m];
    if (!l)
        return false;
    uint32_t first = s->streams[k->first_stream].first;
    for (uint32_t o = first; o < first + lhi_machine_count_operations(s, m);
         o++) {
        w->new_r[o] = FAR;
        w->new_e[o] = -1;
    }
    return !lhi_lattice_tighten(l, w, budget);
}

/* Converts a time in job-shop units to ns, limited to the range from 0 to the
 * refuted deadline. */
static int64_t convert_to_ns(const prover *r, int64_t units)
{
    int64_t ns = units * r->shop->unit_ns, most = r->out->c.refuted_ns;
    return units < 0 ? 0 : ns > most ? most : ns;
}

/* Copies the time windows of machine m, which has no order within them, into
 * the certificate. */
static lh_status record_machine(prover *r, uint32_t m, lh_error *err)
{
    const lhi_shop *s = r->shop;
    const lhi_machine *k = &s->machines[m];
    lh_certificate *c = &r->out->c;
    lh_proof_row *rows = LHI_NEW(r->out->mem, lh_proof_row, k->n_streams);
    if (!rows)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < k->n_streams; i++) {
        const lhi_stream *t = &s->streams[k->first_stream + i];
        int64_t *start = LHI_NEW(r->out->mem, int64_t, t->count);
        int64_t *finish = LHI_NEW(r->out->mem, int64_t, t->count);
        if (!start || !finish)
            return lhi_fail_nomem(err);
        for (uint32_t x = 0; x < t->count; x++) {
            start[x] = convert_to_ns(r, r->windows->r[t->first + x]);
            finish[x] = convert_to_ns(r, r->windows->e[t->first + x]);
        }
        rows[i] = (lh_proof_row){.chunk = t->chunk,
                                 .kind = get_kind(s, t),
                                 .message = is_message(t),
                                 .n_passes = t->count,
                                 .start_ns = start,
                                 .finish_ns = finish};
    }
    c->rows = rows;
    c->n_rows = k->n_streams;
    if (k->kind == LHI_DEVICE)
        c->device = k->index;
    else
        c->link = lhi_arena_strdup(r->out->mem, s->p->resource_names[k->index]);
    return c->link ? LH_OK : lhi_fail_nomem(err);
}

/* Tries to prove by propagating time windows that no schedule meets the
 * deadline makespan - 1; *done: whether it succeeded. */
static lh_status prove_by_windows(prover *r, bool *done, lh_error *err)
{
    int64_t units = r->out->c.refuted_ns / r->shop->unit_ns;
    uint32_t impossible;
    lhi_windows_free(r->windows); /* lattices that an earlier call could not
                                   * complete */
    r->windows = NULL;
    LHI_TRY(lhi_windows_make(r->shop, r->o.memory / 2, &r->budget, r->mem,
                             &r->windows, &impossible, err));
    *done = !lhi_windows_set(r->windows, lhi_shop_get_deadline(r->shop, units),
                             &r->budget);
    if (!*done)
        return LH_OK;
    /* If some passes take no time, job-shop times differ from the pipeline's.
     */
    for (uint32_t m = 0; r->shop->scale == 1 && m < r->shop->n_machines; m++) {
        const lhi_machine *k = &r->shop->machines[m];
        if (k->n_streams > 0 &&
            (k->kind == LHI_DEVICE || k->kind == LHI_LINK) &&
            is_infeasible(r->windows, m, &r->budget)) {
            r->out->c.kind = LH_PROOF_WINDOWS;
            return record_machine(r, m, err);
        }
    }
    /* The recorded machine must not depend on the clock. */
    *done = !r->budget.timed_out;
    if (*done)
        r->out->c.kind = LH_PROOF_WINDOWS;
    return LH_OK;
}

/* --- search --------------------------------------------------------------- */

/* Returns operation `op`'s pass; for a message the pass that produces
 * it. */
static lh_pass get_pass(const lhi_shop *s, uint32_t op)
{
    const lhi_stream *t = &s->streams[s->stream_of[op]];
    uint32_t x = op - t->first;
    return (lh_pass){.chunk = t->chunk,
                     .microbatch = x / t->per,
                     .part = (uint16_t)(x % t->per),
                     .n_parts = (uint16_t)t->per,
                     .kind = get_kind(s, t)};
}

/* Converts the log of clauses that the search has learned (each: one of several
 * orders of operation pairs must hold) to clauses of the certificate. */
static lh_status read_clause_log(prover *r, lh_error *err)
{
    const lhi_shop *s = r->shop;
    lh_certificate *c = &r->out->c;
    const uint32_t *words = r->log.words;
    uint32_t n = 0;
    for (size_t at = 0; at < r->log.n; at += 1 + 2 * (size_t)words[at])
        n++;
    lh_proof_clause *clauses = LHI_NEW(r->out->mem, lh_proof_clause, n);
    if (!clauses)
        return lhi_fail_nomem(err);
    size_t at = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t size = words[at++];
        lh_proof_order *orders = LHI_NEW(r->out->mem, lh_proof_order, size);
        if (!orders)
            return lhi_fail_nomem(err);
        for (uint32_t i = 0; i < size; i++, at += 2)
            orders[i] = (lh_proof_order){
                .first = get_pass(s, words[at]),
                .second = get_pass(s, words[at + 1]),
                .messages = is_message(&s->streams[s->stream_of[words[at]]])};
        clauses[k] = (lh_proof_clause){.n_orders = size, .orders = orders};
    }
    c->kind = LH_PROOF_SEARCH;
    c->clauses = clauses;
    c->n_clauses = n;
    return LH_OK;
}

/* Counts the pairs of operations on one machine, in different streams
 * (operations in fixed order), whose order is not given; the search decides
 * these orders. */
static uint64_t count_pairs(const lhi_shop *s)
{
    uint64_t n = 0;
    for (uint32_t m = 0; m < s->n_machines; m++) {
        const lhi_machine *k = &s->machines[m];
        const lhi_stream *t = &s->streams[k->first_stream];
        for (uint32_t i = 0; i < k->n_streams && k->leader == NONE; i++)
            for (uint32_t j = i + 1; j < k->n_streams; j++)
                n += (uint64_t)t[i].count * t[j].count;
    }
    return n;
}

/* Tries to prove by clause learning, from the windows that prove_by_windows()
 * has tightened, that no schedule meets the deadline makespan - 1, and records
 * the clauses; *done: whether it succeeded. */
static lh_status prove_by_search(prover *r, bool *done, lh_error *err)
{
    int64_t units = r->out->c.refuted_ns / r->shop->unit_ns;
    lhi_search *search = NULL;
    lhi_answer answer = LHI_GAVE_UP;
    size_t size;
    lhi_windows_compute_all_counts(r->windows, &r->budget);
    if (r->budget.stop)
        return LH_OK;
    LHI_TRY(lhi_machine_orders_make(r->shop, r->mem, &r->orders, err));
    LHI_TRY(lhi_search_estimate_bytes(r->windows, true, &size, err));
    if (count_pairs(r->shop) > LH_PROOF_MAX_PAIRS || size > r->o.memory / 2) {
        r->why = "the pipeline is too large for a clause search";
        return LH_OK;
    }
    r->log.most = MAX_LOG_WORDS;
    LHI_TRY(lhi_search_make(r->shop, lhi_shop_get_deadline(r->shop, units),
                            r->windows, NULL, &search, err));
    lhi_search_set_log(search, &r->log);
    lh_status status = lhi_search_run(search, UINT64_MAX / 2, r->o.memory,
                                      &r->budget, r->orders, &answer, err);
    lhi_search_free(search);
    if (status != LH_OK)
        return status;
    *done = answer == LHI_REFUTED && !r->log.incomplete;
    if (*done)
        return read_clause_log(r, err);
    if (!r->budget.stop)
        r->why = answer == LHI_REFUTED ? "it has too many clauses"
                                       : "it needs more memory";
    return LH_OK;
}

/* --- driver --------------------------------------------------------------- */

/* A method that proves that no schedule has the makespan refuted_ns. */
typedef lh_status proof_method(prover *r, bool *done, lh_error *err);

/* Tries the first n methods in order until one is *done. Each has an equal
 * share of the effort and time that those before it have left over. Effort and
 * time that remain at the end go to the methods whose share was too small, in
 * order. */
static lh_status try_methods(prover *r, uint32_t n, bool *done, lh_error *err)
{
    static proof_method *const methods[] = {prove_by_pass_kinds,
                                            prove_by_windows, prove_by_search};
    bool again[3] = {false};
    for (uint32_t i = 0; i < n && !*done && !r->budget.stop; i++) {
        const lhi_budget_limits whole =
            lhi_budget_begin_share(&r->budget, n - i);
        lh_status status = methods[i](r, done, err);
        again[i] = lhi_budget_end_share(&r->budget, whole);
        LHI_TRY(status);
    }
    for (uint32_t i = 0; i < n && !*done && !r->budget.stop; i++)
        if (again[i])
            LHI_TRY(methods[i](r, done, err));
    return LH_OK;
}

/* Proves that no schedule has a makespan below the solution's bound: by pass
 * kinds and, for an `optimal` solution, by time windows or by search. Otherwise
 * stores the reason why it could not. */
static lh_status refute(prover *r, bool optimal, lh_error *err)
{
    lh_error why = {0};
    bool done = false;
    if (lh_pipeline_shares_links(r->p, LH_NONE)) {
        r->why = "with links that data-parallel communication shares only "
                 "closed forms are recorded";
        return LH_OK;
    }
    lh_status status =
        lhi_shop_make(r->p, r->o.sub_blocks, r->o.fifo,
                      LH_SOLVE_OBJECTIVE_MAKESPAN, r->mem, &r->shop, &why);
    if (status == LH_EUNSUPPORTED) {
        r->why = lhi_arena_strdup(r->mem, why.text);
        return r->why ? LH_OK : lhi_fail_nomem(err);
    }
    if (status == LH_OK && r->shop->restricted) {
        r->why =
            "for weight-gradient passes in unequal parts only closed forms "
            "are recorded";
        return LH_OK;
    }
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    r->out->c.refuted_ns = r->out->c.bound_ns - 1;
    LHI_TRY(try_methods(r, optimal ? 3 : 1, &done, err));
    if (done)
        r->why = NULL;
    else if (r->budget.stop)
        r->why = "its repetition was stopped; give it more time";
    else if (!optimal)
        r->why = "for a schedule that is not optimal only closed forms and "
                 "pass kinds are recorded";
    return LH_OK;
}

/* Fills in the certificate's claims from the solution: schedule, makespan,
 * lower bound, pipeline hash, program version and solver options. */
static lh_status fill_claims(prover *r, const lh_solution *solution,
                             lh_error *err)
{
    lh_certificate *c = &r->out->c;
    char hash[LHI_HASH_TEXT];
    LHI_TRY(lhi_schedule_copy(solution->schedule, &r->out->schedule, err));
    c->schedule = r->out->schedule;
    LHI_TRY(lhi_pipeline_hash(r->p, hash, err));
    c->pipeline_hash = lhi_arena_strdup(r->out->mem, hash);
    c->version = lhi_arena_strdup(r->out->mem, lh_version());
    c->fifo = r->o.fifo;
    c->sub_blocks = r->o.sub_blocks;
    c->makespan_ns = solution->makespan_ns;
    c->bound_ns = solution->bound_ns;
    return c->pipeline_hash && c->version ? LH_OK : lhi_fail_nomem(err);
}

/* Stores in the certificate a proof of the solution's bound, or the reason why
 * there is none. */
static lh_status prove(prover *r, const lh_solution *solution, lh_error *err)
{
    bool done = false;
    LHI_TRY(fill_claims(r, solution, err));
    if (r->o.objective != LH_SOLVE_OBJECTIVE_MAKESPAN)
        r->why = "only bounds of the makespan are recorded";
    if (r->why)
        return LH_OK;
    LHI_TRY(prove_by_closed_form(r, &done, err));
    return done ? LH_OK : refute(r, solution->status == LH_SOLVE_OPTIMAL, err);
}

/* Marks the certificate as one without a proof. States the bound, how the
 * solver has proven it, and why that proof is not recorded. */
static lh_status record_reason(prover *r, const lh_solution *solution,
                               lh_error *err)
{
    char text[300] = "";
    if (solution->proven_by && solution->proven_by[0])
        snprintf(text, sizeof text,
                 "the solver has proven the bound of %" PRId64
                 " ns (by %s), but not recorded the proof: ",
                 solution->bound_ns, solution->proven_by);
    strncat(text, r->why, sizeof text - 1 - strlen(text));
    r->out->c.kind = LH_PROOF_NONE;
    r->out->c.why = lhi_arena_strdup(r->out->mem, text);
    return r->out->c.why ? LH_OK : lhi_fail_nomem(err);
}

lh_status lh_certify(const lh_pipeline *pipeline,
                     const lh_solve_options *options,
                     const lh_solution *solution, lh_certificate **out,
                     lh_error *err)
{
    prover r = {.p = pipeline};
    LHI_TRY(lhi_pipeline_require_one_direction(pipeline, "a certificate", err));
    if (!solution->schedule)
        return lhi_fail(err, LH_EINVAL,
                        "the solution has no schedule to certify");
    LHI_TRY(LHI_OPTIONS_COPY(lh_solve_options, &r.o, options, err));
    r.o.sub_blocks = r.o.sub_blocks ? r.o.sub_blocks : 1;
    r.o.memory = r.o.memory ? r.o.memory : (size_t)1 << 30;
    lhi_budget_begin(&r.budget, &r.o);
    r.mem = lhi_arena_make(0);
    lh_status status =
        r.mem ? lhi_certificate_make(&r.out, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = prove(&r, solution, err);
    if (status == LH_OK && r.why)
        status = record_reason(&r, solution, err);
    lhi_windows_free(r.windows);
    lhi_arena_free(r.mem);
    free(r.log.words);
    if (status == LH_OK)
        *out = &r.out->c;
    else if (r.out)
        lh_certificate_free(&r.out->c);
    return status;
}
