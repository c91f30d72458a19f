/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a certificate, statement by statement. */
#include "schedule/certificate/certificate.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/verifier/model.h"
#include "schedule/verifier/verifier.h"

#include <inttypes.h>
#include <longhaul/experimental/check.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Maximum number of checked statements of a certificate. */
enum { MAX_STATEMENTS = 12 };

/* One checked statement with its text. */
typedef struct statement {
    lh_claim_status status;
    const char *text;
} statement;

/* The results; all memory belongs to `mem`. */
struct lh_claims {
    lhi_arena *mem;
    uint32_t n;
    statement all[MAX_STATEMENTS];
    bool no_memory;
};

/* State while checking. */
typedef struct checker {
    const lh_pipeline *p;
    const lh_schedule *schedule; /* or NULL */
    const lh_certificate *c;
    uint64_t most_work; /* steps that verify the proof */
    lh_claims *out;
} checker;

static void add_statement(checker *k, lh_claim_status status,
                          const char *format, ...) LHI_PRINTF(3, 4);

/* Appends a sentence with its status (verified, unverified or wrong) to the
 * list of statements about the certificate. If allocation fails or the list is
 * full, sets k->out->no_memory. */
static void add_statement(checker *k, lh_claim_status status,
                          const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *copy = lhi_arena_strdup(k->out->mem, text);
    if (copy && k->out->n < MAX_STATEMENTS)
        k->out->all[k->out->n++] = (statement){status, copy};
    else
        k->out->no_memory = true;
}

/* --- pipeline and schedule ------------------------------------------------ */

/* Checks that the certificate's hash is that of the pipeline's canonical text.
 */
static lh_status check_pipeline(checker *k, lh_error *err)
{
    char *text, hash[32];
    size_t len;
    uint64_t value = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    LHI_TRY(lh_pipeline_format(k->p, &text, &len, err));
    for (size_t i = 0; i < len; i++) {
        value ^= (unsigned char)text[i];
        value *= UINT64_C(0x100000001b3);
    }
    lh_text_free(text);
    snprintf(hash, sizeof hash, "fnv1a64:%016" PRIx64, value);
    if (strcmp(hash, k->c->pipeline_hash) == 0)
        add_statement(k, LH_CLAIM_VERIFIED,
                      "the certificate is for this pipeline");
    else
        add_statement(k, LH_CLAIM_WRONG,
                      "the certificate is for another pipeline: %.40s, not %s",
                      k->c->pipeline_hash, hash);
    return LH_OK;
}

/* Checks that every W in schedule `s` is undivided, or divided into the number
 * of parts for which the certificate's bound is proven. */
static bool has_parts(const checker *k, const lh_schedule *s)
{
    for (uint32_t d = 0; d < lh_schedule_n_devices(s); d++) {
        uint32_t n;
        const lh_pass *order = lh_schedule_order(s, d, &n);
        for (uint32_t i = 0; i < n; i++)
            if (order[i].n_parts > 1 && order[i].n_parts != k->c->sub_blocks)
                return false;
    }
    return true;
}

/* Checks schedule `s`, called `name` in the statements: it must be valid and
 * have the claimed makespan. */
static lh_status check_schedule(checker *k, const lh_schedule *s,
                                const char *name, int64_t claimed_ns,
                                lh_error *err)
{
    lh_verdict *v = NULL;
    LHI_TRY(lh_check(k->p, s, &v, err));
    int64_t ns = lh_verdict_makespan(v);
    if (!lh_verdict_valid(v))
        add_statement(k, LH_CLAIM_WRONG, "%s is not valid: %.200s", name,
                      lh_verdict_violation(v, 0));
    else if (ns != claimed_ns)
        add_statement(k, LH_CLAIM_WRONG,
                      "%s is valid and takes %" PRId64 " ns, not %" PRId64
                      " ns",
                      name, ns, claimed_ns);
    else if (!has_parts(k, s))
        add_statement(k, LH_CLAIM_UNVERIFIED,
                      "%s takes %" PRId64
                      " ns, but splits weight-gradient passes into other parts "
                      "than the bound assumes",
                      name, ns);
    else
        add_statement(k, LH_CLAIM_VERIFIED,
                      "%s is valid and takes %" PRId64 " ns", name, ns);
    lh_verdict_free(v);
    return LH_OK;
}

/* --- closed forms --------------------------------------------------------- */

/* Recomputes the closed-form bound that the certificate names, and compares its
 * terms and sum with those in the certificate. */
static lh_status check_closed_form(checker *k, lh_error *err)
{
    const lh_certificate *c = k->c;
    lh_bound_term terms[LHI_VERIFY_MAX_TERMS];
    uint32_t n;
    int64_t sum;
    LHI_TRY(lhi_verify_compute_closed_form(k->p, c->form, c->device, c->link,
                                           terms, &n, &sum, err));
    bool same = n > 0 && n == c->n_terms;
    for (uint32_t i = 0; same && i < n; i++)
        same = strcmp(terms[i].name, c->terms[i].name) == 0 &&
               terms[i].times == c->terms[i].times &&
               terms[i].ns == c->terms[i].ns;
    char where[80] = "";
    if (c->device != LH_NONE)
        snprintf(where, sizeof where, " on device %" PRIu32, c->device);
    else if (c->link[0])
        snprintf(where, sizeof where, " on link %.48s", c->link);
    const char *name = lhi_closed_form_name(c->form);
    if (n == 0)
        add_statement(k, LH_CLAIM_WRONG,
                      "the closed form '%s'%s does not apply to this pipeline",
                      name, where);
    else if (sum < c->bound_ns)
        add_statement(k, LH_CLAIM_WRONG,
                      "the closed form '%s'%s gives %" PRId64
                      " ns, not %" PRId64 " ns",
                      name, where, sum, c->bound_ns);
    else if (!same)
        add_statement(k, LH_CLAIM_WRONG,
                      "the closed form '%s'%s has other terms than the "
                      "certificate",
                      name, where);
    else
        add_statement(k, LH_CLAIM_VERIFIED,
                      "no schedule takes less than %" PRId64
                      " ns: closed form '%s'%s, "
                      "recomputed",
                      c->bound_ns, name, where);
    return LH_OK;
}

/* --- refutations ---------------------------------------------------------- */

/* Returns the model's machine for the device or link that the certificate
 * names; LH_NONE: none. */
static uint32_t find_machine(const lhi_verify_model *claim,
                             const lh_certificate *c)
{
    for (uint32_t m = 0; m < claim->n_machines; m++) {
        const lhi_verify_machine *k = &claim->machines[m];
        if (c->device != LH_NONE
                ? k->device == c->device
                : k->device == LH_NONE && strcmp(k->link, c->link) == 0)
            return m;
    }
    return LH_NONE;
}

/* Checks whether the windows (earliest start, latest end) that the certificate
 * records for one machine refute the deadline: its operations have no order
 * within them. This only checks the record; the bound is verified
 * independently. */
static bool does_record_refute(lhi_verify_model *claim, const lh_certificate *c)
{
    uint32_t m = find_machine(claim, c);
    if (m == LH_NONE || c->n_rows != claim->machines[m].n_rows)
        return false;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const lh_proof_row *r = &c->rows[i];
        const lhi_verify_row *row =
            lhi_verify_find_row(claim, r->chunk, r->kind, r->message);
        if (!row || row->machine != m || row->count != r->n_passes)
            return false;
        for (uint32_t x = 0; x < r->n_passes; x++) {
            int64_t start = r->start_ns[x], finish = r->finish_ns[x];
            if (start < 0 || finish < 0 || start > c->refuted_ns ||
                finish > c->refuted_ns)
                return false;
            claim->start[row->first + x] =
                start / claim->unit_ns * claim->scale;
            claim->finish[row->first + x] =
                lhi_verify_get_deadline(claim, finish);
        }
    }
    return lhi_verify_is_machine_infeasible(claim, m);
}

/* Adds the statement that the proof needs more work than the limit, if it
 * does; returns whether it does. */
static bool add_work_statement(checker *k, const lhi_verify_model *claim)
{
    if (claim->work <= k->most_work)
        return false;
    add_statement(k, LH_CLAIM_UNVERIFIED,
                  "the certificate needs more work than %" PRIu64
                  " steps, the verifier's limit",
                  k->most_work);
    return true;
}

/* Adds the statements about a proof by windows (earliest start, latest end of
 * operations). `refuted`: the windows that the verifier computed itself refute
 * the deadline. */
static void add_window_statements(checker *k, lhi_verify_model *claim,
                                  bool refuted)
{
    const lh_certificate *c = k->c;
    if (!refuted && add_work_statement(k, claim))
        return;
    if (!refuted) {
        add_statement(k, LH_CLAIM_UNVERIFIED,
                      "the verifier's windows do not refute %" PRId64 " ns",
                      c->refuted_ns);
        return;
    }
    add_statement(k, LH_CLAIM_VERIFIED,
                  "no schedule takes %" PRId64
                  " ns or less: windows of devices and links, recomputed",
                  c->refuted_ns);
    if (c->n_rows == 0)
        return;
    char where[80];
    if (c->device != LH_NONE)
        snprintf(where, sizeof where, "device %" PRIu32, c->device);
    else
        snprintf(where, sizeof where, "link %.48s", c->link);
    if (does_record_refute(claim, c))
        add_statement(
            k, LH_CLAIM_VERIFIED,
            "%s alone cannot satisfy the recorded starts and finishes", where);
    else if (!add_work_statement(k, claim))
        add_statement(
            k, LH_CLAIM_UNVERIFIED,
            "the recorded starts and finishes for %s are not contradictory by "
            "themselves",
            where);
}

/* Adds the statement whether the certificate's clauses follow (`bad`: the first
 * that does not) and refute the deadline (`refuted`). */
static void add_clause_statement(checker *k, const lhi_verify_model *claim,
                                 uint32_t bad, bool refuted)
{
    const lh_certificate *c = k->c;
    if (refuted)
        add_statement(
            k, LH_CLAIM_VERIFIED,
            "no schedule takes %" PRId64 " ns or less: each of %" PRIu32
            " clauses follows from those before it, and none is left open",
            c->refuted_ns, c->n_clauses);
    else if (add_work_statement(k, claim))
        return;
    else if (bad != LH_NONE)
        add_statement(
            k, LH_CLAIM_UNVERIFIED,
            "clause %" PRIu32 " of %" PRIu32
            " does not follow from the previous ones by the checker's rules",
            bad + 1, c->n_clauses);
    else
        add_statement(k, LH_CLAIM_UNVERIFIED,
                      "%" PRIu32 " clauses follow, but do not refute %" PRId64
                      " ns",
                      c->n_clauses, c->refuted_ns);
}

/* Checks by the relaxation that does not distinguish chunks that the recorded
 * device cannot meet the deadline, and adds the statement. */
static lh_status check_pass_kinds(checker *k, lhi_verify_model *claim,
                                  int64_t deadline, lh_error *err)
{
    const lh_certificate *c = k->c;
    const uint32_t m = c->device == LH_NONE ? LH_NONE : find_machine(claim, c);
    bool refuted = false;
    if (m == LH_NONE) {
        add_statement(k, LH_CLAIM_WRONG,
                      "the certificate names no device of the pipeline");
        return LH_OK;
    }
    LHI_TRY(lhi_verify_check_pass_kinds(claim, m, deadline, &refuted, err));
    if (refuted)
        add_statement(k, LH_CLAIM_VERIFIED,
                      "no schedule takes %" PRId64
                      " ns or less: passes by kind on device %" PRIu32
                      ", recomputed",
                      c->refuted_ns, c->device);
    else if (!add_work_statement(k, claim))
        add_statement(k, LH_CLAIM_UNVERIFIED,
                      "passes by kind on device %" PRIu32
                      " do not refute %" PRId64 " ns",
                      c->device, c->refuted_ns);
    return LH_OK;
}

/* Checks by the method of the certificate's proof that no schedule is shorter
 * than the claimed makespan, and adds the statements. */
static lh_status check_refuted_deadline(checker *k, lhi_verify_model *claim,
                                        lh_error *err)
{
    const lh_certificate *c = k->c;
    int64_t deadline = lhi_verify_get_deadline(claim, c->refuted_ns);
    bool refuted = false;
    uint32_t bad = LH_NONE;
    if (lhi_verify_get_next_makespan(claim, c->refuted_ns) < c->bound_ns) {
        add_statement(k, LH_CLAIM_WRONG,
                      "that no schedule takes %" PRId64
                      " ns does not make %" PRId64 " ns a bound",
                      c->refuted_ns, c->bound_ns);
        return LH_OK;
    }
    if (deadline < 0) {
        add_statement(k, LH_CLAIM_UNVERIFIED,
                      "the times exceed the verifier's range");
        return LH_OK;
    }
    if (c->kind == LH_PROOF_PASS_KINDS)
        return check_pass_kinds(k, claim, deadline, err);
    if (c->kind == LH_PROOF_WINDOWS) {
        LHI_TRY(lhi_verify_tighten_windows(claim, deadline, &refuted, err));
        add_window_statements(k, claim, refuted);
    } else {
        LHI_TRY(
            lhi_verify_check_clauses(claim, deadline, c, &bad, &refuted, err));
        add_clause_statement(k, claim, bad, refuted);
    }
    return LH_OK;
}

/* Builds the verifier's own job-shop model and checks with it that shorter
 * makespans are impossible; adds the statements. */
static lh_status check_refutation(checker *k, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_verify_model *claim = NULL;
    const char *why = NULL;
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_verify_model_make(
        k->p, k->c->sub_blocks, k->most_work, mem, &claim, &why, err);
    if (status == LH_OK && claim)
        status = check_refuted_deadline(k, claim, err);
    else if (status == LH_OK)
        add_statement(k, LH_CLAIM_UNVERIFIED, "the bound was not checked: %s",
                      why);
    lhi_verify_model_fini(claim);
    lhi_arena_free(mem);
    return status;
}

/* --- driver --------------------------------------------------------------- */

/* Checks the bound by the method of the certificate's proof and adds its
 * statements. */
static lh_status check_proof(checker *k, lh_error *err)
{
    switch (k->c->kind) {
    case LH_PROOF_CLOSED_FORM:
        return check_closed_form(k, err);
    case LH_PROOF_PASS_KINDS:
    case LH_PROOF_WINDOWS:
    case LH_PROOF_SEARCH:
        return check_refutation(k, err);
    default:
        add_statement(k, LH_CLAIM_UNVERIFIED,
                      "the certificate contains no "
                      "proof of the bound: %.300s",
                      k->c->why);
        return LH_OK;
    }
}

/* Checks that the certificate belongs to the pipeline, then its schedules, its
 * proof, and the bound against the makespan. Stops after the first step if the
 * certificate belongs to another pipeline. */
static lh_status check_all(checker *k, lh_error *err)
{
    const lh_certificate *c = k->c;
    LHI_TRY(check_pipeline(k, err));
    if (k->out->all[0].status == LH_CLAIM_WRONG)
        return LH_OK;
    LHI_TRY(check_schedule(k, c->schedule, "the certificate's schedule",
                           c->makespan_ns, err));
    if (k->schedule)
        LHI_TRY(check_schedule(k, k->schedule, "the schedule given",
                               c->makespan_ns, err));
    const uint32_t proof = k->out->n;
    LHI_TRY(check_proof(k, err));
    if (c->makespan_ns > c->bound_ns)
        add_statement(k, LH_CLAIM_UNVERIFIED,
                      "the makespan exceeds the bound%s by %" PRId64
                      " ns: the schedule is not proven optimal",
                      k->out->all[proof].status == LH_CLAIM_VERIFIED
                          ? ""
                          : ", which is not verified,",
                      c->makespan_ns - c->bound_ns);
    else if (c->makespan_ns < c->bound_ns)
        add_statement(k, LH_CLAIM_WRONG, "the bound is above the makespan");
    return LH_OK;
}

lh_status lhi_verify_check_certificate(const lh_pipeline *pipeline,
                                       const lh_schedule *schedule,
                                       const lh_certificate *certificate,
                                       uint64_t most_work, lh_claims **out,
                                       lh_error *err)
{
    LHI_TRY(lhi_pipeline_require_one_direction(pipeline, "a certificate", err));
    lhi_arena *mem = lhi_arena_make(0);
    checker k = {.p = pipeline,
                 .schedule = schedule,
                 .c = certificate,
                 .most_work = most_work};
    k.out = mem ? LHI_NEW(mem, lh_claims, 1) : NULL;
    if (!k.out) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    k.out->mem = mem;
    lh_status status = check_all(&k, err);
    if (status == LH_OK && k.out->no_memory)
        status = lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = k.out;
    return LH_OK;
}

lh_status lh_check_certificate(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               const lh_certificate *certificate,
                               lh_claims **out, lh_error *err)
{
    return lhi_verify_check_certificate(pipeline, schedule, certificate,
                                        LHI_VERIFY_MOST_WORK, out, err);
}

/* Frees a list of claims; ignores NULL. */
void lh_claims_free(lh_claims *claims)
{
    if (claims)
        lhi_arena_free(claims->mem);
}

uint32_t lh_n_claims(const lh_claims *claims)
{
    return claims->n;
}

lh_claim_status lh_claims_status(const lh_claims *claims, uint32_t i)
{
    return claims->all[i].status;
}

const char *lh_claims_text(const lh_claims *claims, uint32_t i)
{
    return claims->all[i].text;
}

lh_claim_status lh_claims_verdict(const lh_claims *claims)
{
    lh_claim_status worst = LH_CLAIM_VERIFIED;
    for (uint32_t i = 0; i < claims->n; i++)
        if (claims->all[i].status > worst)
            worst = claims->all[i].status;
    return worst;
}

const char *lh_claim_status_name(lh_claim_status status)
{
    static const char *const texts[] = {"verified", "not verified", "wrong"};
    return (unsigned)status < 3 ? texts[status] : "unknown";
}
