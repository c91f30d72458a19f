/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/pipeline/schedule_internal.h"

#include "base/fail.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/pipeline.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char kind_letters[] = {
    [LH_F] = 'F', [LH_D] = 'I', [LH_W] = 'W', [LH_B] = 'B'};

char *lh_pass_format(const lh_pass *pass, char *buffer)
{
    char letter = pass->kind <= LH_B ? kind_letters[pass->kind] : '?';
    int n = snprintf(buffer, LH_PASS_TEXT_SIZE, "%" PRIu32 "%c%" PRIu32,
                     pass->chunk, letter, pass->microbatch);
    if (pass->n_parts > 1)
        snprintf(buffer + n, LH_PASS_TEXT_SIZE - (size_t)n, ":%u/%u",
                 (unsigned)pass->part, (unsigned)pass->n_parts);
    return buffer;
}

/* Names by lh_comm_kind; a microbatch follows the first N_MESSAGE_KINDS. */
static const char *const comm_names[] = {
    [LH_COMM_SEND_F] = "SEND_F",
    [LH_COMM_RECV_F] = "RECV_F",
    [LH_COMM_SEND_B] = "SEND_B",
    [LH_COMM_RECV_B] = "RECV_B",
    [LH_COMM_WAIT_SEND_F] = "WAIT_SEND_F",
    [LH_COMM_WAIT_SEND_B] = "WAIT_SEND_B",
    [LH_COMM_UNSHARD] = "UNSHARD",
    [LH_COMM_RESHARD] = "RESHARD",
    [LH_COMM_REDUCE_GRAD] = "REDUCE_GRAD",
    [LH_COMM_WAIT_REDUCE_GRAD] = "WAIT_REDUCE_GRAD",
};
/* Number of kinds of communication cells. */
enum { N_MESSAGE_KINDS = LH_COMM_WAIT_SEND_B + 1 };

char *lh_comm_format(const lh_comm *comm, char *buffer)
{
    int n = snprintf(
        buffer, LH_PASS_TEXT_SIZE, "%" PRIu32 "%s", comm->chunk,
        comm->kind <= LH_COMM_WAIT_REDUCE_GRAD ? comm_names[comm->kind] : "?");
    if (comm->kind < N_MESSAGE_KINDS)
        snprintf(buffer + n, LH_PASS_TEXT_SIZE - (size_t)n, "%" PRIu32,
                 comm->microbatch);
    return buffer;
}

const char *lhi_scan_comm(const char *at, const char *end, lh_comm *out)
{
    at = lhi_scan_number(at, end, LH_MAX_CHUNKS, &out->chunk);
    for (uint8_t kind = 0; at && kind <= LH_COMM_WAIT_REDUCE_GRAD; kind++) {
        const size_t len = strlen(comm_names[kind]);
        if ((size_t)(end - at) < len || memcmp(at, comm_names[kind], len) != 0)
            continue;
        out->kind = kind;
        out->microbatch = 0;
        return kind < N_MESSAGE_KINDS
                   ? lhi_scan_number(at + len, end, LH_MAX_MICROBATCHES,
                                     &out->microbatch)
                   : at + len;
    }
    return NULL;
}

const char *lhi_scan_number(const char *at, const char *end, uint32_t below,
                            uint32_t *out)
{
    const char *start = at;
    uint64_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value >= below)
            return NULL;
    }
    *out = (uint32_t)value;
    return at > start ? at : NULL;
}

const char *lhi_scan_pass_kind(const char *at, const char *end, uint32_t *chunk,
                               uint8_t *kind)
{
    at = lhi_scan_number(at, end, LH_MAX_CHUNKS, chunk);
    if (!at || at == end)
        return NULL;
    const char *letter = memchr(kind_letters, *at, sizeof kind_letters);
    if (!letter)
        return NULL;
    *kind = (uint8_t)(letter - kind_letters);
    return at + 1;
}

/* Parses a split W's part, as in ":2/8". Returns the position after it, or
 * NULL: not of that form. *bad_cut is set if the pass cannot have these
 * parts. */
static const char *parse_w_part(const char *at, const char *end, lh_pass *pass,
                                bool *bad_cut)
{
    uint32_t part, n_parts;
    at = lhi_scan_number(at + 1, end, LH_MAX_PARTS, &part);
    if (!at || at == end || *at != '/')
        return NULL;
    at = lhi_scan_number(at + 1, end, LH_MAX_PARTS + 1, &n_parts);
    if (!at)
        return NULL;
    if (pass->kind != LH_W || n_parts < 2 || part >= n_parts) {
        if (bad_cut)
            *bad_cut = true;
        return NULL;
    }
    pass->part = (uint16_t)part;
    pass->n_parts = (uint16_t)n_parts;
    return at;
}

const char *lhi_scan_pass(const char *at, const char *end, lh_pass *out,
                          bool *bad_cut)
{
    lh_pass pass = {.n_parts = 1};
    at = lhi_scan_pass_kind(at, end, &pass.chunk, &pass.kind);
    if (at)
        at = lhi_scan_number(at, end, LH_MAX_MICROBATCHES, &pass.microbatch);
    if (at && at < end && *at == ':')
        at = parse_w_part(at, end, &pass, bad_cut);
    if (at)
        *out = pass;
    return at;
}

bool lhi_parse_pass(const char *text, void *pass)
{
    const char *end = text + strlen(text);
    lh_pass found;
    if (lhi_scan_pass(text, end, &found, NULL) != end)
        return false;
    *(lh_pass *)pass = found;
    return true;
}

const char *lhi_format_pass(const void *pass, char *text)
{
    return lh_pass_format(pass, text);
}

/* Checks that a pass has a known kind, numbers within a pipeline's limits, and
 * parts only if it is a W. */
static lh_status check_form(const lh_pass *pass, lh_error *err)
{
    char text[LH_PASS_TEXT_SIZE];
    if (pass->kind > LH_B)
        return lhi_fail(err, LH_EINVAL, "unknown pass kind %u",
                        (unsigned)pass->kind);
    if (pass->chunk >= LH_MAX_CHUNKS || pass->microbatch >= LH_MAX_MICROBATCHES)
        return lhi_fail(err, LH_EINVAL, "pass %s is out of range",
                        lh_pass_format(pass, text));
    if (pass->n_parts < 1 || pass->n_parts > LH_MAX_PARTS ||
        pass->part >= pass->n_parts ||
        (pass->n_parts > 1 && pass->kind != LH_W))
        return lhi_fail(err, LH_EINVAL,
                        "pass %s: only W can be split, into 2 to %u parts",
                        lh_pass_format(pass, text), LH_MAX_PARTS);
    return LH_OK;
}

/* Checks that every marked pass is part of a pair: an F directly followed by a
 * B. */
static lh_status check_pairs(const lh_pass *passes, uint32_t n, lh_error *err)
{
    char text[LH_PASS_TEXT_SIZE];
    for (uint32_t i = 0; i < n; i++) {
        if (!passes[i].overlapped)
            continue;
        if (passes[i].kind == LH_F && i + 1 < n && passes[i + 1].overlapped &&
            passes[i + 1].kind == LH_B)
            i++;
        else
            return lhi_fail(err, LH_EINVAL,
                            "pass %s is marked as overlapped, but is not an F "
                            "followed by a marked B",
                            lh_pass_format(&passes[i], text));
    }
    return LH_OK;
}

/* Checks the form of n passes and copies them into the schedule's arena.
 * `is_link`: they name messages, whose order has no overlapped pairs. */
static lh_status copy_passes(lh_schedule *s, const lh_pass *from, uint32_t n,
                             bool is_link, const lh_pass **out, lh_error *err)
{
    lh_pass *to = LHI_NEW(s->mem, lh_pass, n);
    if (!to)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        LHI_TRY(check_form(&from[i], err));
        to[i] = from[i];
        to[i].overlapped = from[i].overlapped && !is_link;
    }
    *out = to;
    return LH_OK;
}

bool lhi_is_link_name(const char *name, size_t len)
{
    if (len == 0 || name[0] == ' ' || name[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < ' ' || c == 0x7f || c == ',' || c == '"')
            return false;
    }
    return true;
}

/* Checks and copies the orders of all devices and links into the schedule's
 * arena. */
static lh_status copy_orders(lh_schedule *s, uint32_t n_devices,
                             const lh_pass *const *orders,
                             const uint32_t *counts, uint32_t n_link_orders,
                             const lh_link_order *link_orders, lh_error *err)
{
    lh_link_order *links = LHI_NEW(s->mem, lh_link_order, n_link_orders);
    s->orders = LHI_NEW(s->mem, const lh_pass *, n_devices);
    s->counts = LHI_NEW(s->mem, uint32_t, n_devices);
    if (!links || !s->orders || !s->counts)
        return lhi_fail_nomem(err);
    s->n_devices = n_devices;
    for (uint32_t d = 0; d < n_devices; d++) {
        LHI_TRY(
            copy_passes(s, orders[d], counts[d], false, &s->orders[d], err));
        LHI_TRY(check_pairs(s->orders[d], counts[d], err));
        s->counts[d] = counts[d];
    }
    for (uint32_t i = 0; i < n_link_orders; i++) {
        const char *name = link_orders[i].link;
        if (!lhi_is_link_name(name, strlen(name)))
            return lhi_fail(err, LH_EINVAL, "'%.60s' is not a valid link name",
                            name);
        links[i].link = lhi_arena_strdup(s->mem, name);
        if (!links[i].link)
            return lhi_fail_nomem(err);
        LHI_TRY(copy_passes(s, link_orders[i].passes, link_orders[i].n_passes,
                            true, &links[i].passes, err));
        links[i].n_passes = link_orders[i].n_passes;
    }
    s->link_orders = links;
    s->n_link_orders = n_link_orders;
    return LH_OK;
}

lh_status lh_schedule_make(uint32_t n_devices, const lh_pass *const *orders,
                           const uint32_t *n_passes, uint32_t n_link_orders,
                           const lh_link_order *link_orders, lh_schedule **out,
                           lh_error *err)
{
    if (n_devices < 1 || n_devices > LH_MAX_DEVICES)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " devices are out of range; from 1 to %u",
                        n_devices, LH_MAX_DEVICES);
    lhi_arena *mem = lhi_arena_make(0);
    lh_schedule *s = mem ? LHI_NEW(mem, lh_schedule, 1) : NULL;
    if (!s) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    s->mem = mem;
    lh_status status = copy_orders(s, n_devices, orders, n_passes,
                                   n_link_orders, link_orders, err);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = s;
    return LH_OK;
}

lh_status lh_schedule_copy(const lh_schedule *schedule, bool links,
                           lh_schedule **out, lh_error *err)
{
    return lh_schedule_make(
        schedule->n_devices, schedule->orders, schedule->counts,
        links ? schedule->n_link_orders : 0, schedule->link_orders, out, err);
}

lh_status lhi_schedule_copy(const lh_schedule *s, lh_schedule **out,
                            lh_error *err)
{
    return lh_schedule_copy(s, true, out, err);
}

void lh_schedule_free(lh_schedule *schedule)
{
    if (schedule)
        lhi_arena_free(schedule->mem);
}

const lh_comm *lh_schedule_comms(const lh_schedule *schedule, uint32_t device,
                                 uint32_t *n)
{
    *n = schedule->comms ? schedule->comm_counts[device] : 0;
    return schedule->comms ? schedule->comms[device] : NULL;
}

uint32_t lh_schedule_n_comms(const lh_schedule *schedule)
{
    return schedule->n_comms;
}

uint32_t lh_schedule_n_devices(const lh_schedule *schedule)
{
    return schedule->n_devices;
}

const lh_pass *lh_schedule_order(const lh_schedule *schedule, uint32_t device,
                                 uint32_t *n_passes)
{
    *n_passes = schedule->counts[device];
    return schedule->orders[device];
}

uint32_t lhi_schedule_cell(const lh_schedule *schedule, uint32_t device,
                           uint32_t pass)
{
    const uint32_t *cells = schedule->cells ? schedule->cells[device] : NULL;
    return cells ? cells[pass] : pass + 1;
}

uint32_t lh_schedule_n_link_orders(const lh_schedule *schedule)
{
    return schedule->n_link_orders;
}

const lh_link_order *lh_schedule_link_order(const lh_schedule *schedule,
                                            uint32_t i)
{
    return &schedule->link_orders[i];
}

int64_t lhi_schedule_measure_overlap(const lh_schedule *schedule,
                                     const lh_pipeline *pipeline,
                                     uint32_t device)
{
    int64_t saved_ns = 0;
    for (uint32_t i = 0; i < schedule->counts[device]; i++) {
        lh_pass alone = schedule->orders[device][i];
        saved_ns -= lhi_pass_duration(pipeline, &alone);
        alone.overlapped = false;
        saved_ns += lhi_pass_duration(pipeline, &alone);
    }
    return saved_ns;
}
