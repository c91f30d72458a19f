/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/control_messages.h"

#include "base/bytes.h"
#include "base/fail.h"
#include "base/input_limits.h"

#include <string.h>

/* Tensors and their sums are sent in host byte order. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "ranks exchange little-endian numbers");

/* Kinds of message, from 1. */
typedef enum message_kind {
    MESSAGE_COMMAND = 1,
    MESSAGE_REPORT,
    MESSAGE_NOTICE,
    MESSAGE_COUNTS,
    MESSAGE_OUTCOME,
    MESSAGE_PROPOSAL,
    MESSAGE_VOTE,
    MESSAGE_SWITCH,
    MESSAGE_OBSERVATION,
    MESSAGE_ADAPT_NOTICE
} message_kind;

static const char *const names[] = {
    [MESSAGE_COMMAND] = "a command",
    [MESSAGE_REPORT] = "a report",
    [MESSAGE_NOTICE] = "a notice",
    [MESSAGE_COUNTS] = "a count of records",
    [MESSAGE_OUTCOME] = "an outcome",
    [MESSAGE_PROPOSAL] = "a proposal",
    [MESSAGE_VOTE] = "a vote",
    [MESSAGE_SWITCH] = "a switch",
    [MESSAGE_OBSERVATION] = "an observation",
    [MESSAGE_ADAPT_NOTICE] = "an adaptation notice",
};

/* Bytes of a control message's header. */
enum { HEAD_BYTES = 4 };

/* --- field encoding --- */

/* Encodes 32 bits, little-endian, and advances `at`. */
static void put32(unsigned char **at, uint32_t value)
{
    lhi_store_little_endian(*at, 4, value);
    *at += 4;
}

/* Encodes 64 bits, little-endian, and advances `at`. */
static void put64(unsigned char **at, uint64_t value)
{
    lhi_store_little_endian(*at, 8, value);
    *at += 8;
}

/* Encodes a double by its IEEE 754 bits, and advances `at`. */
static void put_real(unsigned char **at, double value)
{
    put64(at, lhi_double_to_bits(value));
}

/* Decodes 32 bits, little-endian, and advances `at`. */
static uint32_t get32(const unsigned char **at)
{
    uint32_t value = (uint32_t)lhi_load_little_endian(*at, 4);
    *at += 4;
    return value;
}

/* Decodes 64 bits, little-endian, and advances `at`. */
static uint64_t get64(const unsigned char **at)
{
    uint64_t value = lhi_load_little_endian(*at, 8);
    *at += 8;
    return value;
}

/* Decodes a time in nanoseconds and advances `at`. */
static int64_t get_time(const unsigned char **at)
{
    return (int64_t)get64(at);
}

/* Decodes a double from its IEEE 754 bits and advances `at`. */
static double get_real(const unsigned char **at)
{
    return lhi_double_from_bits(get64(at));
}

/* Writes the header (kind, version, size) of a control message; returns its
 * fields' start. */
static unsigned char *put_head(unsigned char *out, message_kind kind)
{
    out[0] = 'L';
    out[1] = 'E';
    out[2] = LHI_MESSAGE_VERSION;
    out[3] = (unsigned char)kind;
    return out + HEAD_BYTES;
}

/* Checks kind, version and size `want` of a control message; *at: start of its
 * fields. LH_EIO: another message. */
static lh_status get_head(const unsigned char *in, size_t size,
                          message_kind kind, size_t want,
                          const unsigned char **at, lh_error *err)
{
    if (size < HEAD_BYTES || in[0] != 'L' || in[1] != 'E')
        return lhi_fail(err, LH_EIO, "bytes that are not %s", names[kind]);
    if (in[2] != LHI_MESSAGE_VERSION)
        return lhi_fail(err, LH_EIO, "%s of version %d, not %d", names[kind],
                        in[2], LHI_MESSAGE_VERSION);
    if (in[3] != kind)
        return lhi_fail(err, LH_EIO, "a message of kind %d, not %s", in[3],
                        names[kind]);
    if (size != want)
        return lhi_fail(err, LH_EIO, "%s of %zu bytes, not %zu", names[kind],
                        size, want);
    *at = in + HEAD_BYTES;
    return LH_OK;
}

/* Fails with LH_EIO because the field `field` of a control message has the
 * invalid value `value`. */
static lh_status fail_field(message_kind kind, const char *field,
                            uint64_t value, lh_error *err)
{
    return lhi_fail(err, LH_EIO, "%s whose %s is %llu", names[kind], field,
                    (unsigned long long)value);
}

/* --- messages --- */

void lhi_command_write(const lhi_command *o,
                       unsigned char out[LHI_COMMAND_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_COMMAND);
    put32(&at, (uint32_t)o->what);
    put64(&at, o->step);
    put64(&at, (uint64_t)o->t0_ns);
    put32(&at, o->proposes | (uint32_t)o->wants_observation << 1);
    put32(&at, (uint32_t)o->verdict);
    put32(&at, o->stopped_by);
}

lh_status lhi_command_read(const unsigned char *in, size_t size,
                           lhi_command *out, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(get_head(in, size, MESSAGE_COMMAND, LHI_COMMAND_BYTES, &at, err));
    uint32_t what = get32(&at);
    lhi_command o = {.what = (lhi_command_kind)what, .step = get64(&at)};
    o.t0_ns = get_time(&at);
    uint32_t proposes = get32(&at), verdict = get32(&at);
    o.proposes = proposes & 1;
    o.wants_observation = proposes >> 1;
    o.verdict = (lhi_verdict)verdict;
    o.stopped_by = get32(&at);
    if (what > LHI_COMMAND_MOVE)
        return fail_field(MESSAGE_COMMAND, "kind", what, err);
    if (proposes > 3)
        return fail_field(MESSAGE_COMMAND, "proposal", proposes, err);
    if (verdict > LHI_VERDICT_DROP)
        return fail_field(MESSAGE_COMMAND, "verdict", verdict, err);
    if (o.stopped_by > LHI_NET_MAX_RANKS ||
        (o.stopped_by && what != LHI_COMMAND_END))
        return fail_field(MESSAGE_COMMAND, "stop", o.stopped_by, err);
    *out = o;
    return LH_OK;
}

void lhi_command_report_write(const lhi_command_report *d,
                              unsigned char out[LHI_COMMAND_REPORT_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_REPORT);
    put32(&at, d->n_collectives);
    put64(&at, (uint64_t)d->end_ns);
    put_real(&at, d->loss);
    put64(&at, d->n_slips);
    put64(&at, (uint64_t)d->worst_late_ns);
    put64(&at, d->pool_growth);
    put32(&at, d->is_stopping);
}

lh_status lhi_command_report_read(const unsigned char *in, size_t size,
                                  lhi_command_report *out, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(
        get_head(in, size, MESSAGE_REPORT, LHI_COMMAND_REPORT_BYTES, &at, err));
    lhi_command_report d = {.n_collectives = get32(&at)};
    d.end_ns = get_time(&at);
    d.loss = get_real(&at);
    d.n_slips = get64(&at);
    d.worst_late_ns = get_time(&at);
    d.pool_growth = get64(&at);
    const uint32_t stops = get32(&at);
    if (stops > 1)
        return fail_field(MESSAGE_REPORT, "stop", stops, err);
    d.is_stopping = stops;
    *out = d;
    return LH_OK;
}

void lhi_receive_notice_write(int64_t posted_ns,
                              unsigned char out[LHI_RECEIVE_NOTICE_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_NOTICE);
    put32(&at, 0);
    put64(&at, (uint64_t)posted_ns);
}

lh_status lhi_receive_notice_read(const unsigned char *in, size_t size,
                                  int64_t *posted_ns, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(
        get_head(in, size, MESSAGE_NOTICE, LHI_RECEIVE_NOTICE_BYTES, &at, err));
    uint32_t rest = get32(&at);
    if (rest)
        return fail_field(MESSAGE_NOTICE, "reserved field", rest, err);
    *posted_ns = get_time(&at);
    return LH_OK;
}

/* --- records --- */

void lhi_record_counts_write(const lhi_record_counts *c,
                             unsigned char out[LHI_RECORD_COUNTS_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_COUNTS);
    put32(&at, c->n_passes);
    put32(&at, c->n_collectives);
    put32(&at, 0);
}

lh_status lhi_record_counts_read(const unsigned char *in, size_t size,
                                 lhi_record_counts *out, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(
        get_head(in, size, MESSAGE_COUNTS, LHI_RECORD_COUNTS_BYTES, &at, err));
    lhi_record_counts c = {get32(&at), 0};
    c.n_collectives = get32(&at);
    uint32_t rest = get32(&at);
    if (rest)
        return fail_field(MESSAGE_COUNTS, "reserved field", rest, err);
    *out = c;
    return LH_OK;
}

size_t lhi_record_rows_size(const lhi_record_counts *c)
{
    return (size_t)c->n_passes * LHI_PASS_RECORD_BYTES +
           (size_t)c->n_collectives * LHI_COLLECTIVE_RECORD_BYTES;
}

/* Encodes `n` records of collectives and offload copies into `out`. */
static void put_collectives(const lhi_collective_record *executed, uint32_t n,
                            unsigned char *out)
{
    for (uint32_t i = 0; i < n; i++) {
        put32(&out, executed[i].chunk);
        put32(&out, executed[i].is_reduce_scatter);
        put32(&out, executed[i].op);
        put32(&out, executed[i].copy);
        put64(&out, (uint64_t)executed[i].ready_ns);
        put64(&out, (uint64_t)executed[i].depart_ns);
        put64(&out, (uint64_t)executed[i].sent_ns);
        put64(&out, (uint64_t)executed[i].arrive_ns);
    }
}

/* Decodes `n` records of collectives and offload copies into `executed`;
 * LH_EIO: one has an invalid kind. */
static lh_status get_collectives(const unsigned char *in, uint32_t n,
                                 lhi_collective_record *executed, lh_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        lhi_collective_record *x = &executed[i];
        x->chunk = get32(&in);
        uint32_t scatter = get32(&in);
        x->is_reduce_scatter = scatter != 0;
        x->op = get32(&in);
        x->copy = get32(&in);
        if (scatter > 1 || (x->copy && (scatter || x->op != LH_NONE)))
            return lhi_fail(err, LH_EIO, "a communication of an unknown kind");
        x->ready_ns = get_time(&in);
        x->depart_ns = get_time(&in);
        x->sent_ns = get_time(&in);
        x->arrive_ns = get_time(&in);
    }
    return LH_OK;
}

void lhi_record_rows_write(const lhi_record_counts *c,
                           const lhi_pass_record *records,
                           const lhi_collective_record *executed,
                           unsigned char *out)
{
    for (uint32_t i = 0; i < c->n_passes; i++) {
        put64(&out, (uint64_t)records[i].start_ns);
        put64(&out, (uint64_t)records[i].end_ns);
        put64(&out, (uint64_t)records[i].issued_ns);
        put64(&out, (uint64_t)records[i].entered_ns);
        put64(&out, (uint64_t)records[i].arrived_ns);
    }
    put_collectives(executed, c->n_collectives, out);
}

lh_status lhi_record_rows_read(const unsigned char *in, size_t size,
                               const lhi_record_counts *c,
                               lhi_pass_record *records,
                               lhi_collective_record *executed, lh_error *err)
{
    if (size != lhi_record_rows_size(c))
        return lhi_fail(err, LH_EIO, "records of %zu bytes, not %zu", size,
                        lhi_record_rows_size(c));
    for (uint32_t i = 0; i < c->n_passes; i++) {
        records[i].start_ns = get_time(&in);
        records[i].end_ns = get_time(&in);
        records[i].issued_ns = get_time(&in);
        records[i].entered_ns = get_time(&in);
        records[i].arrived_ns = get_time(&in);
        records[i].peak_bytes = 0;
    }
    return get_collectives(in, c->n_collectives, executed, err);
}

/* Checks that a time is within 73 years of the clock's zero, so that
 * differences do not overflow. */
static bool is_valid_time(int64_t ns)
{
    const int64_t most = INT64_C(1) << 61;
    return ns >= -most && ns <= most;
}

/* Checks that all times in an observed pass are in range. */
static bool has_valid_pass_times(const lhi_pass_observation *x)
{
    return is_valid_time(x->ready_ns) && is_valid_time(x->ended_ns) &&
           is_valid_time(x->free_ns) && is_valid_time(x->handed_over_ns) &&
           is_valid_time(x->transfer_start_ns) && is_valid_time(x->arrived_ns);
}

/* Checks that all times in a recorded collective or copy are in range. */
static bool has_valid_collective_times(const lhi_collective_record *x)
{
    return is_valid_time(x->ready_ns) && is_valid_time(x->depart_ns) &&
           is_valid_time(x->sent_ns) && is_valid_time(x->arrive_ns);
}

/* Rows are sent in host byte order. */
_Static_assert(sizeof(lhi_pass_observation) == LHI_PASS_OBSERVATION_BYTES,
               "a row has six times and nothing else");

size_t lhi_observation_size(const lhi_observation_header *s)
{
    return LHI_OBSERVATION_HEADER_BYTES +
           (size_t)s->n_passes * LHI_PASS_OBSERVATION_BYTES +
           (size_t)s->n_collectives * LHI_COLLECTIVE_RECORD_BYTES +
           (size_t)s->n_hops * LHI_HOP_OBSERVATION_BYTES;
}

void lhi_observation_write(const lhi_observation_header *s,
                           const lhi_pass_observation *rows,
                           const lhi_collective_record *executed,
                           const lhi_hop_observation *hops, unsigned char *out)
{
    unsigned char *at = put_head(out, MESSAGE_OBSERVATION);
    put32(&at, s->n_passes);
    put32(&at, s->n_collectives);
    put32(&at, s->n_hops);
    put64(&at, s->clock);
    memcpy(at, rows, (size_t)s->n_passes * sizeof *rows);
    at += (size_t)s->n_passes * sizeof *rows;
    put_collectives(executed, s->n_collectives, at);
    at += (size_t)s->n_collectives * LHI_COLLECTIVE_RECORD_BYTES;
    for (uint32_t i = 0; i < s->n_hops; i++) {
        put32(&at, hops[i].place);
        put32(&at, hops[i].hop.n);
        put64(&at, (uint64_t)hops[i].hop.since_sent_ns);
        put64(&at, (uint64_t)hops[i].hop.since_posted_ns);
    }
}

lh_status lhi_observation_read(const unsigned char *in, size_t size,
                               lhi_observation_header *seen,
                               lhi_pass_observation *rows,
                               lhi_collective_record *executed,
                               lhi_hop_observation *hops, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(get_head(in, size, MESSAGE_OBSERVATION, lhi_observation_size(seen),
                     &at, err));
    lhi_observation_header s = {.n_passes = get32(&at)};
    s.n_collectives = get32(&at);
    s.n_hops = get32(&at);
    s.clock = get64(&at);
    if (s.n_passes != seen->n_passes)
        return fail_field(MESSAGE_OBSERVATION, "number of passes", s.n_passes,
                          err);
    if (s.n_collectives != seen->n_collectives)
        return fail_field(MESSAGE_OBSERVATION, "number of communications",
                          s.n_collectives, err);
    if (s.n_hops != seen->n_hops)
        return fail_field(MESSAGE_OBSERVATION, "number of hops", s.n_hops, err);
    memcpy(rows, at, (size_t)s.n_passes * sizeof *rows);
    at += (size_t)s.n_passes * sizeof *rows;
    LHI_TRY(get_collectives(at, s.n_collectives, executed, err));
    at += (size_t)s.n_collectives * LHI_COLLECTIVE_RECORD_BYTES;
    for (uint32_t i = 0; i < s.n_hops; i++) {
        hops[i].place = get32(&at);
        hops[i].hop.n = get32(&at);
        hops[i].hop.since_sent_ns = get_time(&at);
        hops[i].hop.since_posted_ns = get_time(&at);
    }
    bool valid = true;
    for (uint32_t i = 0; i < s.n_passes; i++)
        valid = valid && has_valid_pass_times(&rows[i]);
    for (uint32_t i = 0; i < s.n_collectives; i++)
        valid = valid && has_valid_collective_times(&executed[i]);
    if (!valid)
        return lhi_fail(err, LH_EIO, "%s with a time beyond 73 years",
                        names[MESSAGE_OBSERVATION]);
    *seen = s;
    return LH_OK;
}

/* --- schedule proposals --- */

/* Writes a text into a field of `room` bytes, truncated, zero-terminated and
 * zero-padded, and advances `at`. */
static void put_text(unsigned char **at, const char *text, size_t room)
{
    size_t len = strlen(text);
    if (len >= room)
        len = room - 1;
    memset(*at, 0, room);
    memcpy(*at, text, len);
    *at += room;
}

/* Reads a zero-padded text field of `room` bytes and advances `at`. LH_EIO:
 * not terminated. */
static lh_status get_text(const unsigned char **at, char *out, size_t room,
                          message_kind kind, lh_error *err)
{
    const unsigned char *end = memchr(*at, 0, room);
    size_t len = end ? (size_t)(end - *at) : room;
    for (size_t i = len; i < room; i++)
        if ((*at)[i])
            end = NULL;
    if (!end)
        return lhi_fail(err, LH_EIO, "%s whose text does not end", names[kind]);
    memcpy(out, *at, room);
    *at += room;
    return LH_OK;
}

void lhi_proposal_write(const lhi_proposal *p,
                        unsigned char out[LHI_PROPOSAL_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_PROPOSAL);
    put32(&at, 0);
    put64(&at, p->step);
    put32(&at, p->texts.n_rows);
    put32(&at, p->texts.n_links);
    put32(&at, p->texts.n_paths);
    put32(&at, p->texts.n_assignment);
}

lh_status lhi_proposal_read(const unsigned char *in, size_t size,
                            lhi_proposal *out, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(get_head(in, size, MESSAGE_PROPOSAL, LHI_PROPOSAL_BYTES, &at, err));
    uint32_t begin = get32(&at);
    lhi_proposal p = {.step = get64(&at)};
    lhi_proposal_texts *t = &p.texts;
    t->n_rows = get32(&at);
    t->n_links = get32(&at);
    t->n_paths = get32(&at);
    t->n_assignment = get32(&at);
    if (begin)
        return fail_field(MESSAGE_PROPOSAL, "reserved field", begin, err);
    if (t->n_rows > lhi_input_max_bytes(LHI_INPUT_SCHEDULE))
        return fail_field(MESSAGE_PROPOSAL, "length of rows", t->n_rows, err);
    if (t->n_links > lhi_input_max_bytes(LHI_INPUT_SCHEDULE) ||
        (t->n_links && !t->n_rows))
        return fail_field(MESSAGE_PROPOSAL, "length of link orders", t->n_links,
                          err);
    if (t->n_paths > LHI_PATHS_MAX_BYTES || (t->n_paths && !t->n_rows))
        return fail_field(MESSAGE_PROPOSAL, "length of paths", t->n_paths, err);
    if (t->n_assignment > LHI_RANK_ASSIGNMENT_MAX_BYTES ||
        (t->n_assignment && !t->n_rows))
        return fail_field(MESSAGE_PROPOSAL, "length of the rank assignment",
                          t->n_assignment, err);
    *out = p;
    return LH_OK;
}

void lhi_vote_write(const lhi_vote *v, unsigned char out[LHI_VOTE_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_VOTE);
    put32(&at, v->refuses);
    put64(&at, v->step);
    put_text(&at, v->refuses ? v->why : "", LHI_VOTE_TEXT);
}

lh_status lhi_vote_read(const unsigned char *in, size_t size, lhi_vote *out,
                        lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(get_head(in, size, MESSAGE_VOTE, LHI_VOTE_BYTES, &at, err));
    uint32_t refuses = get32(&at);
    lhi_vote v = {.refuses = refuses, .step = get64(&at)};
    LHI_TRY(get_text(&at, v.why, sizeof v.why, MESSAGE_VOTE, err));
    if (refuses > 1)
        return fail_field(MESSAGE_VOTE, "refusal", refuses, err);
    if (!refuses && v.why[0])
        return lhi_fail(err, LH_EIO, "a vote for a schedule with a reason");
    *out = v;
    return LH_OK;
}

void lhi_switch_write(const lhi_switch *s, unsigned char out[LHI_SWITCH_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_SWITCH);
    put32(&at, (uint32_t)s->path << 1 | s->is_refused);
    put64(&at, s->step);
    put64(&at, (uint64_t)s->predicted_ns);
    put64(&at, (uint64_t)s->expected_ns);
    put64(&at, s->moved_bytes);
    put64(&at, (uint64_t)s->move_ns);
    put64(&at, (uint64_t)s->move_expected_ns);
    put32(&at, s->n_assignment);
    put32(&at, 0);
    put_text(&at, s->to, sizeof s->to);
    put_text(&at, s->why, sizeof s->why);
    put_text(&at, s->refused, sizeof s->refused);
}

lh_status lhi_switch_read(const unsigned char *in, size_t size, lhi_switch *out,
                          lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(get_head(in, size, MESSAGE_SWITCH, LHI_SWITCH_BYTES, &at, err));
    uint32_t refused = get32(&at);
    lhi_switch s = {.is_refused = refused & 1,
                    .path = (lh_data_path)(refused >> 1),
                    .step = get64(&at)};
    s.predicted_ns = get_time(&at);
    s.expected_ns = get_time(&at);
    s.moved_bytes = get64(&at);
    s.move_ns = get_time(&at);
    s.move_expected_ns = get_time(&at);
    s.n_assignment = get32(&at);
    uint32_t rest = get32(&at);
    LHI_TRY(get_text(&at, s.to, sizeof s.to, MESSAGE_SWITCH, err));
    LHI_TRY(get_text(&at, s.why, sizeof s.why, MESSAGE_SWITCH, err));
    LHI_TRY(get_text(&at, s.refused, sizeof s.refused, MESSAGE_SWITCH, err));
    if (refused >> 1 > LH_DATA_PATH_MIXED)
        return fail_field(MESSAGE_SWITCH, "path", refused >> 1, err);
    if (s.n_assignment > LHI_RANK_ASSIGNMENT_MAX_BYTES || rest)
        return fail_field(MESSAGE_SWITCH, "length of the rank assignment",
                          s.n_assignment, err);
    *out = s;
    return LH_OK;
}

/* --- adaptation notices --- */

enum { NOTICE_DECISION = 1, NOTICE_SWITCH = 2 };

void lhi_adapt_notice_write(const lhi_adapt_notice *row,
                            unsigned char out[LHI_ADAPT_NOTICE_BYTES])
{
    const lh_adapt_event *n = &row->notice;
    const lh_monitor_event *e = &n->event;
    unsigned char *at = put_head(out, MESSAGE_ADAPT_NOTICE);
    put32(&at, (n->is_decision ? NOTICE_DECISION : 0u) |
                   (n->is_switch ? NOTICE_SWITCH : 0u));
    put64(&at, n->step);
    put32(&at, (uint32_t)e->target);
    put32(&at, e->index);
    put32(&at, (uint32_t)e->change);
    put32(&at, 0);
    put64(&at, e->first_step);
    put_real(&at, e->baseline_ns);
    put_real(&at, e->current_ns);
    put_real(&at, e->error_ns);
    put64(&at, (uint64_t)e->cost_ns);
    put64(&at, (uint64_t)n->now_ns);
    put64(&at, (uint64_t)n->predicted_ns);
    put64(&at, (uint64_t)n->bound_ns);
    put32(&at, (uint32_t)n->path);
    put32(&at, 0);
    put_text(&at, row->name, sizeof row->name);
    put_text(&at, row->text, sizeof row->text);
}

lh_status lhi_adapt_notice_read(const unsigned char *in, size_t size,
                                lhi_adapt_notice *out, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(get_head(in, size, MESSAGE_ADAPT_NOTICE, LHI_ADAPT_NOTICE_BYTES,
                     &at, err));
    lhi_adapt_notice t = {{0}, "", ""};
    lh_adapt_event *n = &t.notice;
    lh_monitor_event *e = &n->event;
    uint32_t kind = get32(&at);
    n->is_decision = kind & NOTICE_DECISION;
    n->is_switch = kind & NOTICE_SWITCH;
    n->step = get64(&at);
    uint32_t what = get32(&at);
    e->target = (lh_monitor_target)what;
    e->index = get32(&at);
    uint32_t change = get32(&at), rest = get32(&at);
    e->change = (lh_monitor_change)change;
    e->first_step = get64(&at);
    e->baseline_ns = get_real(&at);
    e->current_ns = get_real(&at);
    e->error_ns = get_real(&at);
    e->cost_ns = get_time(&at);
    n->now_ns = get_time(&at);
    n->predicted_ns = get_time(&at);
    n->bound_ns = get_time(&at);
    uint32_t path = get32(&at), end = get32(&at);
    n->path = (lh_data_path)path;
    LHI_TRY(get_text(&at, t.name, sizeof t.name, MESSAGE_ADAPT_NOTICE, err));
    LHI_TRY(get_text(&at, t.text, sizeof t.text, MESSAGE_ADAPT_NOTICE, err));
    if (kind > (NOTICE_DECISION | NOTICE_SWITCH) || kind == NOTICE_SWITCH)
        return fail_field(MESSAGE_ADAPT_NOTICE, "kind", kind, err);
    if (what > LH_MONITOR_DATA)
        return fail_field(MESSAGE_ADAPT_NOTICE, "target", what, err);
    if (change > LH_MONITOR_ENDS)
        return fail_field(MESSAGE_ADAPT_NOTICE, "change", change, err);
    if (path > LH_DATA_PATH_MIXED)
        return fail_field(MESSAGE_ADAPT_NOTICE, "path", path, err);
    if (rest || end)
        return fail_field(MESSAGE_ADAPT_NOTICE, "reserved field", rest | end,
                          err);
    *out = t;
    return LH_OK;
}

/* --- outcome --- */

void lhi_outcome_head_write(const lhi_outcome *o,
                            unsigned char out[LHI_OUTCOME_BYTES])
{
    unsigned char *at = put_head(out, MESSAGE_OUTCOME);
    put32(&at, o->interrupted);
    put64(&at, o->n_iterations);
    put64(&at, o->pool_growth);
    put32(&at, o->n_recorded);
    put32(&at, o->n_switches);
    put32(&at, o->texts.n_rows);
    put32(&at, o->texts.n_links);
    put32(&at, o->n_notices);
    put32(&at, o->texts.n_paths);
    put32(&at, o->texts.n_assignment);
    put32(&at, 0);
    put64(&at, o->monitor_ns);
}

lh_status lhi_outcome_head_read(const unsigned char *in, size_t size,
                                lhi_outcome *out, lh_error *err)
{
    const unsigned char *at = NULL;
    LHI_TRY(get_head(in, size, MESSAGE_OUTCOME, LHI_OUTCOME_BYTES, &at, err));
    uint32_t interrupted = get32(&at);
    lhi_outcome o = {.n_iterations = get64(&at), .interrupted = interrupted};
    o.pool_growth = get64(&at);
    o.n_recorded = get32(&at);
    o.n_switches = get32(&at);
    o.texts.n_rows = get32(&at);
    o.texts.n_links = get32(&at);
    o.n_notices = get32(&at);
    o.texts.n_paths = get32(&at);
    o.texts.n_assignment = get32(&at);
    if (get32(&at))
        return fail_field(MESSAGE_OUTCOME, "reserved field", 1, err);
    o.monitor_ns = get64(&at);
    if (interrupted > 1)
        return fail_field(MESSAGE_OUTCOME, "interruption", interrupted, err);
    *out = o;
    return LH_OK;
}

void lhi_iteration_write(const lh_iteration *it,
                         unsigned char out[LHI_ITERATION_BYTES])
{
    put64(&out, it->step);
    put64(&out, (uint64_t)it->ns);
    put_real(&out, it->loss);
    put_real(&out, it->validation_loss);
    put_real(&out, it->gradient_norm);
    put_real(&out, it->learning_rate);
    put64(&out, it->tokens);
    put64(&out, it->missed_deadlines);
    put64(&out, (uint64_t)it->max_lateness_ns);
    put_real(&out, it->mtp_loss);
    put64(&out, (uint64_t)it->predicted_ns);
}

lh_iteration lhi_iteration_read(const unsigned char in[LHI_ITERATION_BYTES])
{
    lh_iteration it;
    it.step = get64(&in);
    it.ns = get_time(&in);
    it.loss = get_real(&in);
    it.validation_loss = get_real(&in);
    it.gradient_norm = get_real(&in);
    it.learning_rate = get_real(&in);
    it.tokens = get64(&in);
    it.missed_deadlines = get64(&in);
    it.max_lateness_ns = get_time(&in);
    it.mtp_loss = get_real(&in);
    it.predicted_ns = get_time(&in);
    return it;
}
