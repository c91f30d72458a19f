/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/rank_assignment.h"

#include "base/fail.h"
#include "base/text.h"

#include <longhaul/pipeline.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- text format --- */

/* Appends comma-separated numbers and a semicolon; NULL: only the semicolon. */
static void write_numbers(lhi_text *text, const uint32_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; numbers && i < n; i++)
        lhi_text_printf(text, "%s%" PRIu32, i ? "," : "", numbers[i]);
    lhi_text_puts(text, ";");
}

lh_status lhi_rank_assignment_format(const lhi_rank_assignment *s, char **out,
                                     lh_error *err)
{
    lhi_text text = {0};
    size_t size;
    if (s && (s->layers || s->ranks)) {
        write_numbers(&text, s->layers, s->n_chunks);
        write_numbers(&text, s->ranks, s->n_places);
        write_numbers(&text, s->relays, s->n_places);
        lhi_text_printf(&text, "%" PRId64, s->move_ns);
    } else {
        lhi_text_puts(&text, "");
    }
    return lhi_text_take(&text, out, &size, err);
}

/* Position in a parsed text. */
typedef struct cursor {
    const char *at, *end;
} cursor;

/* Parses a decimal number from 0 to `most`, at most 18 digits without sign,
 * into *out; false: there is none. */
static bool read_number(cursor *c, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    uint32_t n = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && n < 19; n++)
        value = 10 * value + (uint64_t)(*c->at++ - '0');
    *out = value;
    return n > 0 && n < 19 && value <= most;
}

/* Consumes the character `what` if it is the next one; returns whether it
 * was. */
static bool take_char(cursor *c, char what)
{
    if (c->at == c->end || *c->at != what)
        return false;
    c->at++;
    return true;
}

/* Fails because a field of an encoded rank assignment is invalid. */
static lh_status fail_field(const char *what, lh_error *err)
{
    return lhi_fail(err, LH_EINPUT, "a rank assignment with invalid %s", what);
}

/* Parses n numbers of at most `most`, or none (*out NULL), then a semicolon;
 * `what` names the field in errors. */
static lh_status read_numbers(cursor *c, uint32_t n, uint64_t most,
                              const char *what, uint32_t **out, lh_error *err)
{
    if (take_char(c, ';'))
        return LH_OK;
    uint32_t *all = *out = calloc(n, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t one;
        if (!read_number(c, most, &one) || !take_char(c, i + 1 < n ? ',' : ';'))
            return fail_field(what, err);
        all[i] = (uint32_t)one;
    }
    return LH_OK;
}

/* --- validation --- */

lh_status
lhi_rank_assignment_fail_layers(const lhi_rank_assignment_limits *limits,
                                lh_error *err)
{
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "layers cannot migrate in this run: %s",
                    limits->layers_fixed_reason);
}

lh_status
lhi_rank_assignment_fail_places(const lhi_rank_assignment_limits *limits,
                                lh_error *err)
{
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "ranks cannot migrate in this run: %s",
                    limits->places_fixed_reason);
}

/* Checks that each chunk has a layer and all chunks together have the job's
 * layer count. */
static lh_status check_layers(const lhi_rank_assignment *s,
                              const lhi_rank_assignment_limits *limits,
                              lh_error *err)
{
    uint64_t sum = 0;
    for (uint32_t c = 0; c < s->n_chunks; c++) {
        if (s->layers[c] == 0)
            return lhi_fail(err, LH_EINPUT,
                            "chunk %" PRIu32 " would have no layer; each needs "
                            "one",
                            c);
        sum += s->layers[c];
    }
    if (sum != limits->n_layers)
        return lhi_fail(err, LH_EINPUT,
                        "the chunks would have %" PRIu64
                        " layers in total, but the job has %" PRIu32,
                        sum, limits->n_layers);
    return LH_OK;
}

/* Checks that the assigned ranks are a permutation of the places (positions in
 * the process grid). */
static lh_status check_hosts(const lhi_rank_assignment *s, lh_error *err)
{
    bool *there = calloc((size_t)s->n_places + 1, sizeof *there);
    lh_status status = there ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t p = 0; status == LH_OK && p < s->n_places; p++) {
        if (s->ranks[p] >= s->n_places || there[s->ranks[p]])
            status = lhi_fail(
                err, LH_EINPUT,
                "rank %" PRIu32 " would have place %" PRIu32 ", but %s",
                s->ranks[p], p,
                s->ranks[p] >= s->n_places ? "does not exist"
                                           : "already has another place");
        else
            there[s->ranks[p]] = true;
    }
    free(there);
    return status;
}

/* Checks that each relay (rank that forwards migrated state) is an existing
 * rank other than the one that receives the state. */
static lh_status check_relays(const lhi_rank_assignment *s, lh_error *err)
{
    for (uint32_t p = 0; p < s->n_places; p++) {
        uint32_t via = s->relays[p];
        if (via != LH_NONE && (via >= s->n_places || via == s->ranks[p]))
            return lhi_fail(
                err, LH_EINPUT,
                "rank %" PRIu32 " would relay the state for place %" PRIu32
                ", but %s",
                via, p,
                via >= s->n_places ? "does not exist" : "has that place");
    }
    return LH_OK;
}

/* Parses and checks all fields of an encoded rank assignment (layers, ranks,
 * relays, duration) into *to. */
static lh_status read_all(cursor *c, const lhi_rank_assignment_limits *limits,
                          lhi_rank_assignment *to, lh_error *err)
{
    uint64_t ns = 0;
    LHI_TRY(
        read_numbers(c, to->n_chunks, UINT32_MAX, "layers", &to->layers, err));
    if (to->n_places == 0 && c->at < c->end && *c->at != ';')
        return lhi_rank_assignment_fail_places(limits, err);
    LHI_TRY(
        read_numbers(c, to->n_places, UINT32_MAX, "ranks", &to->ranks, err));
    LHI_TRY(
        read_numbers(c, to->n_places, UINT32_MAX, "relays", &to->relays, err));
    if (to->relays && !to->ranks)
        return fail_field("relays", err);
    if (!read_number(c, INT64_MAX / 4, &ns) || c->at != c->end)
        return fail_field("time", err);
    to->move_ns = (int64_t)ns;
    if (to->layers && limits->n_layers == 0)
        return lhi_rank_assignment_fail_layers(limits, err);
    if (to->layers)
        LHI_TRY(check_layers(to, limits, err));
    if (to->ranks)
        LHI_TRY(check_hosts(to, err));
    return to->relays ? check_relays(to, err) : LH_OK;
}

lh_status lhi_rank_assignment_parse(const char *text, uint32_t n,
                                    const lhi_rank_assignment_limits *limits,
                                    lhi_rank_assignment *out, lh_error *err)
{
    cursor c = {text, text + n};
    lhi_rank_assignment made = {.n_chunks = limits->n_chunks,
                                .n_places = limits->n_places};
    if (n > 0) {
        lh_status status = read_all(&c, limits, &made, err);
        if (status != LH_OK) {
            lhi_rank_assignment_fini(&made);
            return status;
        }
    }
    *out = made;
    return LH_OK;
}

/* --- values --- */

/* Copies `n` numbers into a new array; NULL stays NULL. */
static lh_status copy_numbers(const uint32_t *from, uint32_t n, uint32_t **to,
                              lh_error *err)
{
    if (!from)
        return LH_OK;
    if (!(*to = calloc((size_t)n + 1, sizeof **to)))
        return lhi_fail_nomem(err);
    memcpy(*to, from, n * sizeof *from);
    return LH_OK;
}

lh_status lhi_rank_assignment_copy(const lhi_rank_assignment *from,
                                   lhi_rank_assignment *to, lh_error *err)
{
    lhi_rank_assignment made = *from;
    made.layers = made.ranks = made.relays = NULL;
    lh_status status =
        copy_numbers(from->layers, from->n_chunks, &made.layers, err);
    if (status == LH_OK)
        status = copy_numbers(from->ranks, from->n_places, &made.ranks, err);
    if (status == LH_OK)
        status = copy_numbers(from->relays, from->n_places, &made.relays, err);
    if (status != LH_OK) {
        lhi_rank_assignment_fini(&made);
        return status;
    }
    *to = made;
    return LH_OK;
}

void lhi_rank_assignment_fini(lhi_rank_assignment *s)
{
    free(s->layers);
    free(s->ranks);
    free(s->relays);
    s->layers = s->ranks = s->relays = NULL;
}

/* Checks whether two arrays are equal; NULL equals only NULL. */
static bool are_equal(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    if (!a || !b)
        return a == b;
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* Checks whether two rank assignments are equal. Explicit arrays that equal
 * the defaults count as different: the migration then moves nothing and takes
 * no time. */
bool lhi_rank_assignment_equal(const lhi_rank_assignment *a,
                               const lhi_rank_assignment *b)
{
    static const lhi_rank_assignment begun = {0};
    a = a ? a : &begun;
    b = b ? b : &begun;
    const lhi_rank_assignment *any = a->n_chunks ? a : b;
    return are_equal(a->layers, b->layers, any->n_chunks) &&
           are_equal(a->ranks, b->ranks, any->n_places);
}

uint32_t lhi_rank_assignment_find_rank(const lhi_rank_assignment *s,
                                       uint32_t place)
{
    return s && s->ranks ? s->ranks[place] : place;
}

uint32_t lhi_rank_assignment_find_place(const lhi_rank_assignment *s,
                                        uint32_t host)
{
    uint32_t place = 0;
    if (!s || !s->ranks)
        return host;
    while (s->ranks[place] != host)
        place++;
    return place;
}
