/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings of messages between ranks: they round-trip, follow
 * docs/formats/wire.md, and anything else is rejected. */
#include "test.h"

#include "base/bytes.h"
#include "runtime/engine/control_messages.h"
#include "runtime/transport/address_exchange.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/wire_format.h"

#include <math.h>
#include <stdlib.h>

/* --- engine messages: read by functions with one signature ---------------- */

/* Storage for any message. */
typedef union message {
    lhi_command command;
    lhi_command_report done;
    int64_t posted_ns;
    lhi_record_counts counts;
    lhi_outcome outcome;
    lhi_proposal proposal;
    lhi_vote vote;
    lhi_switch change;
    lhi_adapt_notice told;
} message;

typedef lh_status read_message(const unsigned char *in, size_t size,
                               message *out, lh_error *err);

static lh_status read_command(const unsigned char *in, size_t size,
                              message *out, lh_error *err)
{
    return lhi_command_read(in, size, &out->command, err);
}

static lh_status read_done(const unsigned char *in, size_t size, message *out,
                           lh_error *err)
{
    return lhi_command_report_read(in, size, &out->done, err);
}

static lh_status read_notice(const unsigned char *in, size_t size, message *out,
                             lh_error *err)
{
    return lhi_receive_notice_read(in, size, &out->posted_ns, err);
}

static lh_status read_counts(const unsigned char *in, size_t size, message *out,
                             lh_error *err)
{
    return lhi_record_counts_read(in, size, &out->counts, err);
}

static lh_status read_outcome(const unsigned char *in, size_t size,
                              message *out, lh_error *err)
{
    return lhi_outcome_head_read(in, size, &out->outcome, err);
}

static lh_status read_proposal(const unsigned char *in, size_t size,
                               message *out, lh_error *err)
{
    return lhi_proposal_read(in, size, &out->proposal, err);
}

static lh_status read_vote(const unsigned char *in, size_t size, message *out,
                           lh_error *err)
{
    return lhi_vote_read(in, size, &out->vote, err);
}

static lh_status read_switch(const unsigned char *in, size_t size, message *out,
                             lh_error *err)
{
    return lhi_switch_read(in, size, &out->change, err);
}

/* Checks that these are rejected: each truncation, an extra byte, other
 * versions and kinds, and bytes from another sender. The output stays
 * unchanged. */
static void only_this(read_message *read, const unsigned char *bytes,
                      size_t size)
{
    unsigned char copy[LHI_SWITCH_BYTES + 1];
    message out, before;
    lh_error err = {0};
    memset(&before, 0x5a, sizeof before);
    out = before;
    for (size_t n = 0; n < size; n++) {
        /* Exact size, so that sanitizers detect reads past its end. */
        unsigned char *part = malloc(n ? n : 1);
        memcpy(part, bytes, n);
        CHECK_INT(read(part, n, &out, &err), LH_EIO);
        CHECK_HAS(err.text, n < 4 ? "bytes that are not" : " bytes, not ");
        free(part);
    }
    memcpy(copy, bytes, size);
    copy[size] = 0;
    CHECK_INT(read(copy, size + 1, &out, &err), LH_EIO);
    copy[2] = LHI_MESSAGE_VERSION + 1;
    CHECK_INT(read(copy, size, &out, &err), LH_EIO);
    CHECK_HAS(err.text, "of version 13, not 12");
    copy[2] = LHI_MESSAGE_VERSION;
    copy[3] ^= 8;
    CHECK_INT(read(copy, size, &out, &err), LH_EIO);
    CHECK_HAS(err.text, "a message of kind");
    copy[3] ^= 8;
    copy[1] = 'H';
    CHECK_INT(read(copy, size, &out, &err), LH_EIO);
    CHECK_HAS(err.text, "bytes that are not");
    CHECK(memcmp(&out, &before, sizeof out) == 0);
}

/* Checks that a byte value that no sender writes is rejected. */
static void not_with(read_message *read, const unsigned char *bytes,
                     size_t size, size_t at, unsigned char value,
                     const char *why)
{
    unsigned char copy[LHI_SWITCH_BYTES + 1];
    message out;
    lh_error err = {0};
    memcpy(copy, bytes, size);
    copy[at] = value;
    CHECK_INT(read(copy, size, &out, &err), LH_EIO);
    CHECK_HAS(err.text, why);
}

static void commands(void)
{
    unsigned char bytes[LHI_COMMAND_BYTES];
    const lhi_command o = {
        LHI_COMMAND_SAVE, UINT64_MAX - 1, -5, true, true, LHI_VERDICT_DROP, 0};
    message back;
    lh_error err;
    lhi_command_write(&o, bytes);
    CHECK(memcmp(bytes, "LE\14\1\2\0\0\0\xfe\xff", 10) == 0);
    CHECK_INT(lhi_load_little_endian(bytes + 16, 8), (uint64_t)-5);
    CHECK_OK(read_command(bytes, sizeof bytes, &back, &err), err);
    CHECK_INT(back.command.what, o.what);
    CHECK(back.command.step == o.step && back.command.t0_ns == o.t0_ns);
    CHECK(bytes[24] == 3 && bytes[28] == 2 && back.command.wants_observation);
    CHECK(back.command.proposes && back.command.verdict == LHI_VERDICT_DROP);
    only_this(read_command, bytes, sizeof bytes);
    not_with(read_command, bytes, sizeof bytes, 4, 7,
             "a command whose kind is 7");
    not_with(read_command, bytes, sizeof bytes, 24, 4,
             "a command whose proposal is 4");
    not_with(read_command, bytes, sizeof bytes, 28, 3,
             "a command whose verdict is 3");
    not_with(read_command, bytes, sizeof bytes, 32, 1,
             "a command whose stop is 1");
    lhi_command_write(&(lhi_command){.what = LHI_COMMAND_END, .stopped_by = 3},
                      bytes);
    CHECK_OK(read_command(bytes, sizeof bytes, &back, &err), err);
    CHECK_INT(back.command.stopped_by, 3);
}

static void reports(void)
{
    unsigned char bytes[LHI_COMMAND_REPORT_BYTES];
    const lhi_command_report d = {INT64_MIN, 0.1, 3, -7, UINT64_MAX, 5, true};
    const lhi_command_report none = {.loss = NAN};
    message back;
    lh_error err;
    lhi_command_report_write(&none, bytes);
    CHECK_OK(read_done(bytes, sizeof bytes, &back, &err), err);
    CHECK(lhi_double_to_bits(back.done.loss) == lhi_double_to_bits(none.loss));
    lhi_command_report_write(&d, bytes);
    CHECK(memcmp(bytes, "LE\14\2", 4) == 0);
    CHECK(lhi_load_little_endian(bytes + 24, 8) == 3);
    CHECK_OK(read_done(bytes, sizeof bytes, &back, &err), err);
    CHECK(back.done.end_ns == d.end_ns && back.done.loss == d.loss);
    CHECK(back.done.n_slips == 3 && back.done.worst_late_ns == -7);
    CHECK(back.done.pool_growth == UINT64_MAX);
    CHECK(back.done.n_collectives == 5 && bytes[4] == 5);
    CHECK(back.done.is_stopping && bytes[48] == 1);
    not_with(read_done, bytes, sizeof bytes, 48, 2, "a report whose stop is 2");
    only_this(read_done, bytes, sizeof bytes);
}

static void notices(void)
{
    unsigned char bytes[LHI_RECEIVE_NOTICE_BYTES];
    message back;
    lh_error err;
    lhi_receive_notice_write(-123456789012345, bytes);
    CHECK(memcmp(bytes, "LE\14\3\0\0\0\0", 8) == 0);
    CHECK_OK(read_notice(bytes, sizeof bytes, &back, &err), err);
    CHECK(back.posted_ns == -123456789012345);
    only_this(read_notice, bytes, sizeof bytes);
    not_with(read_notice, bytes, sizeof bytes, 5, 1, "whose reserved field is");
}

static void records(void)
{
    const lhi_record_counts n = {2, 2};
    const lhi_pass_record passes[2] = {{1, 2, 5, 3, 4, 0},
                                       {-1, 1 << 20, 1 << 21, 0, INT64_MAX, 0}};
    const lhi_collective_record played[2] = {
        {7, true, LH_NONE, 5, 6, 7, 8, 0}, {3, false, LH_NONE, 1, 2, 4, 4, 9}};
    unsigned char head[LHI_RECORD_COUNTS_BYTES];
    unsigned char
        rows[2 * LHI_PASS_RECORD_BYTES + 2 * LHI_COLLECTIVE_RECORD_BYTES];
    lhi_pass_record passes_back[2];
    lhi_collective_record played_back[2];
    message back;
    lh_error err;
    lhi_record_counts_write(&n, head);
    CHECK(memcmp(head, "LE\14\4\2\0\0\0\2\0\0\0\0\0\0\0", 16) == 0);
    CHECK_OK(read_counts(head, sizeof head, &back, &err), err);
    CHECK(back.counts.n_passes == 2 && back.counts.n_collectives == 2);
    only_this(read_counts, head, sizeof head);
    not_with(read_counts, head, sizeof head, 12, 1,
             "whose reserved field is 1");
    CHECK_INT(lhi_record_rows_size(&n), sizeof rows);
    lhi_record_rows_write(&n, passes, played, rows);
    CHECK(lhi_load_little_endian(rows + 16, 8) == 5 &&
          lhi_load_little_endian(rows + 32, 8) == 4);
    CHECK(rows[80] == 7 && rows[84] == 1);
    CHECK_OK(lhi_record_rows_read(rows, sizeof rows, &n, passes_back,
                                  played_back, &err),
             err);
    CHECK(memcmp(passes, passes_back, sizeof passes) == 0);
    CHECK(played_back[0].chunk == 7 && played_back[0].is_reduce_scatter);
    CHECK(played_back[0].op == LH_NONE && played_back[0].ready_ns == 5);
    CHECK(played_back[0].depart_ns == 6 && played_back[0].sent_ns == 7);
    CHECK(played_back[0].arrive_ns == 8 && played_back[0].copy == 0);
    CHECK(played_back[1].copy == 9 && played_back[1].arrive_ns == 4);
    for (size_t k = 0; k < sizeof rows; k++)
        CHECK_INT(
            lhi_record_rows_read(rows, k, &n, passes_back, played_back, &err),
            LH_EIO);
    rows[84 + LHI_COLLECTIVE_RECORD_BYTES] =
        1; /* a copy is no reduce-scatter */
    CHECK_INT(lhi_record_rows_read(rows, sizeof rows, &n, passes_back,
                                   played_back, &err),
              LH_EIO);
    rows[84 + LHI_COLLECTIVE_RECORD_BYTES] = 0;
    rows[84] = 2;
    CHECK_INT(lhi_record_rows_read(rows, sizeof rows, &n, passes_back,
                                   played_back, &err),
              LH_EIO);
    CHECK_HAS(err.text, "of an unknown kind");
}

static void outcomes(void)
{
    unsigned char bytes[LHI_OUTCOME_BYTES], row[LHI_ITERATION_BYTES];
    const lhi_outcome o = {9, 1, true, 4, 5, 8, {6, 7, 3, 2}, 11};
    const lh_iteration it = {.step = 1,
                             .ns = 2,
                             .loss = 3,
                             .validation_loss = 4,
                             .gradient_norm = 5,
                             .learning_rate = 6,
                             .tokens = 7,
                             .missed_deadlines = 8,
                             .max_lateness_ns = -9,
                             .mtp_loss = 10};
    message back;
    lh_error err;
    lhi_outcome_head_write(&o, bytes);
    CHECK(memcmp(bytes, "LE\14\5\1\0\0\0\x9", 9) == 0);
    CHECK_OK(read_outcome(bytes, sizeof bytes, &back, &err), err);
    CHECK(back.outcome.n_iterations == 9 && back.outcome.pool_growth == 1);
    CHECK(back.outcome.interrupted && back.outcome.n_recorded == 4);
    CHECK(back.outcome.n_switches == 5 && back.outcome.texts.n_rows == 6);
    CHECK(back.outcome.texts.n_links == 7 && bytes[28] == 5 && bytes[36] == 7);
    CHECK(back.outcome.n_notices == 8 && bytes[40] == 8);
    CHECK(back.outcome.texts.n_paths == 3 && bytes[44] == 3);
    CHECK(back.outcome.texts.n_assignment == 2 && bytes[48] == 2);
    CHECK(back.outcome.monitor_ns == 11 && bytes[56] == 11);
    not_with(read_outcome, bytes, sizeof bytes, 52, 1, "reserved field is 1");
    only_this(read_outcome, bytes, sizeof bytes);
    not_with(read_outcome, bytes, sizeof bytes, 4, 2, "interruption is 2");
    lhi_iteration_write(&it, row);
    CHECK(row[0] == 1 && row[48] == 7 && row[71] == 0xff);
    lh_iteration again = lhi_iteration_read(row);
    CHECK(again.step == 1 && again.ns == 2 && again.loss == 3);
    CHECK(again.validation_loss == 4 && again.gradient_norm == 5 &&
          again.learning_rate == 6);
    CHECK(again.tokens == 7 && again.missed_deadlines == 8 &&
          again.max_lateness_ns == -9);
    CHECK(again.mtp_loss == 10);
}

static void proposals(void)
{
    unsigned char bytes[LHI_PROPOSAL_BYTES];
    const lhi_proposal p = {7, {300, 20, 9, 4}};
    message back;
    lh_error err = {0};
    lhi_proposal_write(&p, bytes);
    CHECK(memcmp(bytes, "LE\14\6\0\0\0\0\7", 9) == 0);
    CHECK_INT(lhi_load_little_endian(bytes + 16, 4), 300);
    CHECK_OK(read_proposal(bytes, sizeof bytes, &back, &err), err);
    CHECK(back.proposal.step == 7 && back.proposal.texts.n_rows == 300);
    CHECK_INT(back.proposal.texts.n_links, 20);
    CHECK_INT(back.proposal.texts.n_paths, 9);
    CHECK_INT(bytes[24], 9);
    CHECK_INT(back.proposal.texts.n_assignment, 4);
    CHECK_INT(bytes[28], 4);
    only_this(read_proposal, bytes, sizeof bytes);
    not_with(read_proposal, bytes, sizeof bytes, 4, 1,
             "whose reserved field is 1");
    not_with(read_proposal, bytes, sizeof bytes, 31, 1,
             "length of the rank assignment");
    not_with(read_proposal, bytes, sizeof bytes, 27, 1, "length of paths");
    /* Longer than any schedule, so it must not be allocated. */
    not_with(read_proposal, bytes, sizeof bytes, 19, 0x11, "length of rows");
    not_with(read_proposal, bytes, sizeof bytes, 23, 0x11, "of link orders");
    const lhi_proposal no_rows = {7, {0, 20, 0, 0}}, no_way = {7, {0, 0, 2, 0}},
                       no_one = {7, {0, 0, 0, 3}};
    lhi_proposal_write(&no_rows, bytes);
    CHECK_INT(read_proposal(bytes, sizeof bytes, &back, &err), LH_EIO);
    CHECK_HAS(err.text, "length of link orders is 20");
    lhi_proposal_write(&no_way, bytes);
    CHECK_INT(read_proposal(bytes, sizeof bytes, &back, &err), LH_EIO);
    CHECK_HAS(err.text, "length of paths is 2");
    lhi_proposal_write(&no_one, bytes);
    CHECK_INT(read_proposal(bytes, sizeof bytes, &back, &err), LH_EIO);
    CHECK_HAS(err.text, "length of the rank assignment is 3");
}

static void votes(void)
{
    unsigned char bytes[LHI_VOTE_BYTES];
    lhi_vote against = {true, 9, "no"}, for_it = {false, 9, "left out"};
    message back;
    lh_error err = {0};
    lhi_vote_write(&against, bytes);
    CHECK(memcmp(bytes, "LE\14\7\1\0\0\0\x9", 9) == 0);
    CHECK(memcmp(bytes + 16, "no\0", 3) == 0 && bytes[255] == 0);
    CHECK_OK(read_vote(bytes, sizeof bytes, &back, &err), err);
    CHECK(back.vote.refuses && back.vote.step == 9);
    CHECK_STR(back.vote.why, "no");
    only_this(read_vote, bytes, sizeof bytes);
    not_with(read_vote, bytes, sizeof bytes, 4, 2, "a vote whose refusal is 2");
    not_with(read_vote, bytes, sizeof bytes, 4, 0, "with a reason");
    not_with(read_vote, bytes, sizeof bytes, 255, 1, "does not end");
    memset(against.why, 'a', sizeof against.why - 1);
    lhi_vote_write(&against, bytes);
    CHECK(bytes[254] == 'a' && bytes[255] == 0);
    lhi_vote_write(&for_it, bytes);
    CHECK_OK(read_vote(bytes, sizeof bytes, &back, &err), err);
    CHECK(!back.vote.refuses && !back.vote.why[0]);
}

static void switches(void)
{
    unsigned char bytes[LHI_SWITCH_BYTES];
    const lhi_switch s = {.step = 3,
                          .predicted_ns = -4,
                          .expected_ns = 5,
                          .n_assignment = 9,
                          .moved_bytes = 6,
                          .move_ns = 7,
                          .move_expected_ns = 8,
                          .is_refused = true,
                          .path = LH_DATA_PATH_MIXED,
                          .to = "zb-h1",
                          .why = "slow",
                          .refused = "deadlock"};
    message back;
    lh_error err = {0};
    lhi_switch_write(&s, bytes);
    CHECK(memcmp(bytes, "LE\14\10\5\0\0\0\3", 9) == 0);
    CHECK(memcmp(bytes + 64, "zb-h1", 6) == 0);
    CHECK(memcmp(bytes + 192, "slow", 5) == 0);
    CHECK(memcmp(bytes + 792, "deadlock", 9) == 0);
    CHECK_OK(read_switch(bytes, sizeof bytes, &back, &err), err);
    CHECK(back.change.step == 3 && back.change.predicted_ns == -4);
    CHECK(back.change.is_refused && back.change.expected_ns == 5);
    CHECK(back.change.path == LH_DATA_PATH_MIXED);
    CHECK(bytes[32] == 6 && bytes[40] == 7 && bytes[48] == 8 && bytes[56] == 9);
    CHECK(back.change.moved_bytes == 6 && back.change.move_ns == 7);
    CHECK(back.change.move_expected_ns == 8 && back.change.n_assignment == 9);
    CHECK_STR(back.change.to, s.to);
    CHECK_STR(back.change.why, s.why);
    CHECK_STR(back.change.refused, s.refused);
    only_this(read_switch, bytes, sizeof bytes);
    not_with(read_switch, bytes, sizeof bytes, 4, 6, "whose path is 3");
    not_with(read_switch, bytes, sizeof bytes, 60, 1,
             "length of the rank assignment");
    not_with(read_switch, bytes, sizeof bytes, 1055, 1, "does not end");
}

static lh_status read_told(const unsigned char *in, size_t size, message *out,
                           lh_error *err)
{
    return lhi_adapt_notice_read(in, size, &out->told, err);
}

static void notices_of_changes(void)
{
    unsigned char bytes[LHI_ADAPT_NOTICE_BYTES];
    const lhi_adapt_notice t = {{.step = 7,
                                 .event = {.target = LH_MONITOR_DEVICE,
                                           .index = 3,
                                           .change = LH_MONITOR_ENDS,
                                           .first_step = 5,
                                           .baseline_ns = 0.5,
                                           .current_ns = 1.5,
                                           .error_ns = 2.5,
                                           .cost_ns = -6},
                                 .is_decision = true,
                                 .is_switch = true,
                                 .path = LH_DATA_PATH_DELEGATED,
                                 .now_ns = 8,
                                 .predicted_ns = 9,
                                 .bound_ns = 10},
                                "slack",
                                "since it is slow"};
    message back;
    lh_error err = {0};
    lhi_adapt_notice_write(&t, bytes);
    CHECK(memcmp(bytes, "LE\14\12\3\0\0\0\7", 9) == 0);
    CHECK(bytes[16] == 1 && bytes[20] == 3 && bytes[24] == 2);
    CHECK(memcmp(bytes + 104, "slack", 6) == 0);
    CHECK(memcmp(bytes + 136, "since", 5) == 0);
    CHECK_OK(read_told(bytes, sizeof bytes, &back, &err), err);
    const lh_adapt_event *n = &back.told.notice;
    CHECK(n->step == 7 && n->is_decision && n->is_switch && n->now_ns == 8);
    CHECK(n->path == LH_DATA_PATH_DELEGATED && bytes[96] == 1);
    CHECK(n->predicted_ns == 9 && n->bound_ns == 10 &&
          n->event.first_step == 5);
    CHECK(n->event.baseline_ns == 0.5 && n->event.current_ns == 1.5);
    CHECK(n->event.error_ns == 2.5 && n->event.cost_ns == -6);
    CHECK_STR(back.told.name, t.name);
    CHECK_STR(back.told.text, t.text);
    only_this(read_told, bytes, sizeof bytes);
    not_with(read_told, bytes, sizeof bytes, 4, 2, "whose kind is 2");
    not_with(read_told, bytes, sizeof bytes, 16, 3, "whose target is 3");
    not_with(read_told, bytes, sizeof bytes, 24, 3, "whose change is 3");
    not_with(read_told, bytes, sizeof bytes, 28, 1,
             "whose reserved field is 1");
    not_with(read_told, bytes, sizeof bytes, 96, 3, "whose path is 3");
    not_with(read_told, bytes, sizeof bytes, 100, 1,
             "whose reserved field is 1");
    not_with(read_told, bytes, sizeof bytes, 767, 1, "does not end");
}

/* An observation contains its own size; the reader knows the expected one. */
static void sights(void)
{
    enum {
        SIZE = LHI_OBSERVATION_HEADER_BYTES + 2 * LHI_PASS_OBSERVATION_BYTES +
               LHI_COLLECTIVE_RECORD_BYTES + LHI_HOP_OBSERVATION_BYTES
    };
    unsigned char bytes[SIZE];
    const lhi_pass_observation rows[] = {{1, 2, 3, 4, 5, 6},
                                         {7, 8, 9, 10, 11, -12}};
    const lhi_collective_record played = {1, true, LH_NONE, 2, 3, 4, 5, 0};
    const lhi_hop_observation hop = {3, {2, -5, 7}};
    const lhi_observation_header head = {2, 1, 1, UINT64_MAX - 1};
    lhi_observation_header back = {2, 1, 1, 0}, other;
    lhi_hop_observation hop_back;
    lhi_pass_observation rows_back[2];
    lhi_collective_record played_back;
    lh_error err = {0};
    CHECK_INT(lhi_observation_size(&head), SIZE);
    lhi_observation_write(&head, rows, &played, &hop, bytes);
    CHECK(memcmp(bytes, "LE\14\11\2\0\0\0\1\0\0\0\1\0\0\0\xfe\xff", 18) == 0);
    CHECK(bytes[24] == 1 && bytes[112] == 0xf4 && bytes[120] == 1);
    CHECK_OK(lhi_observation_read(bytes, SIZE, &back, rows_back, &played_back,
                                  &hop_back, &err),
             err);
    CHECK(back.clock == UINT64_MAX - 1);
    CHECK(memcmp(rows, rows_back, sizeof rows) == 0);
    CHECK(played_back.chunk == 1 && played_back.arrive_ns == 5);
    CHECK(hop_back.place == 3 && hop_back.hop.n == 2 &&
          hop_back.hop.since_sent_ns == -5 &&
          hop_back.hop.since_posted_ns == 7);
    for (uint32_t i = 0; i < 2; i++) {
        other = (lhi_observation_header){2 + i, i, 1, 0};
        CHECK_INT(lhi_observation_read(bytes, SIZE, &other, rows_back,
                                       &played_back, &hop_back, &err),
                  LH_EIO);
    }
    bytes[4] = 1;
    CHECK_INT(lhi_observation_read(bytes, SIZE, &back, rows_back, &played_back,
                                   &hop_back, &err),
              LH_EIO);
    CHECK_HAS(err.text, "number of passes is 1");
    bytes[4] = 2;
    bytes[12] = 2;
    CHECK_INT(lhi_observation_read(bytes, SIZE, &back, rows_back, &played_back,
                                   &hop_back, &err),
              LH_EIO);
    CHECK_HAS(err.text, "number of hops is 2");
    bytes[12] = 1;
    bytes[31] = 0x80; /* differences would overflow */
    CHECK_INT(lhi_observation_read(bytes, SIZE, &back, rows_back, &played_back,
                                   &hop_back, &err),
              LH_EIO);
    CHECK_HAS(err.text, "time beyond 73 years");
    bytes[31] = 0;
    bytes[SIZE - LHI_HOP_OBSERVATION_BYTES - 1] = 0x7f;
    CHECK_INT(lhi_observation_read(bytes, SIZE, &back, rows_back, &played_back,
                                   &hop_back, &err),
              LH_EIO);
    CHECK_HAS(err.text, "time beyond 73 years");
}

/* --- before ranks are connected ------------------------------------------- */

static void cards(void)
{
    unsigned char bytes[LHI_UCX_RECORD_BYTES];
    lh_error err = {0};
    lhi_shared_links_location share = {
        .pid = 1, .fd = 2, .n_links = 3, .cookie = {4}};
    lhi_shared_links_location share_back;
    lhi_shared_links_location_write(&share, bytes);
    CHECK(bytes[0] == 1 && bytes[4] == 2 && bytes[8] == 3 && bytes[16] == 4);
    CHECK_OK(lhi_shared_links_location_read(bytes, &share_back, &err), err);
    CHECK(share_back.pid == 1 && share_back.fd == 2);
    CHECK(share_back.n_links == 3 && share_back.cookie[0] == 4);
    bytes[63] = 1;
    CHECK_INT(lhi_shared_links_location_read(bytes, &share_back, &err), LH_EIO);

    lhi_start_record start = {.port = 4711,
                              .failed = true,
                              .host = "here",
                              .address = "10.0.0.1",
                              .secret = {5},
                              .setup_digest = {6}};
    lhi_start_record start_back;
    lhi_start_record_write(&start, bytes);
    CHECK_OK(lhi_start_record_read(bytes, &start_back, &err), err);
    CHECK(start_back.port == 4711 && start_back.failed);
    CHECK_STR(start_back.host, "here");
    CHECK_STR(start_back.address, "10.0.0.1");
    CHECK(start_back.secret[0] == 5 && start_back.setup_digest[0] == 6);
    bytes[8] = LHI_RECORDS_VERSION + 1;
    CHECK_INT(lhi_start_record_read(bytes, &start_back, &err), LH_EIO);
    CHECK_HAS(err.text, "its address record has version 5, not 4");
    bytes[8] = LHI_RECORDS_VERSION;
    memset(bytes + 24, 'x', 256); /* unterminated host name */
    CHECK_INT(lhi_start_record_read(bytes, &start_back, &err), LH_EIO);
    bytes[0] = 'L';
    CHECK_INT(lhi_start_record_read(bytes, &start_back, &err), LH_EIO);
    CHECK_HAS(err.text, "it does not use longhaul's protocol");

    static lhi_ucx_record ucx = {
        .frame_tag = 99, .data_tag = 98, .size = 3, .address = "abc"};
    static lhi_ucx_record ucx_back;
    lhi_ucx_record_write(&ucx, bytes);
    CHECK_OK(lhi_ucx_record_read(bytes, &ucx_back, &err), err);
    CHECK(ucx_back.frame_tag == 99 && ucx_back.data_tag == 98);
    CHECK_INT(ucx_back.size, 3);
    CHECK(memcmp(ucx_back.address, "abc", 4) == 0);
    bytes[12] = LHI_RECORDS_VERSION + 1;
    CHECK_INT(lhi_ucx_record_read(bytes, &ucx_back, &err), LH_EIO);
    CHECK_HAS(err.text, "its address record has version 5, not 4");
    bytes[12] = LHI_RECORDS_VERSION;
    bytes[9] = 16; /* 4099 bytes */
    CHECK_INT(lhi_ucx_record_read(bytes, &ucx_back, &err), LH_EIO);
    CHECK_HAS(err.text, "an invalid UCX address of 4099 bytes");
}

static void greetings(void)
{
    unsigned char bytes[LHI_HANDSHAKE_BYTES];
    const lhi_handshake_message h = {
        .kind = LHI_HANDSHAKE_HELLO, .rank = 3, .n_ranks = 8, .port = 4711};
    lhi_handshake_message back;
    lh_error err = {0};
    lhi_handshake_write(&h, bytes);
    CHECK_OK(lhi_handshake_read(bytes, &back, &err), err);
    CHECK(back.rank == 3 && back.n_ranks == 8 && back.port == 4711);
    bytes[28] = 2; /* rails: only in a HELLO, and limited */
    CHECK_OK(lhi_handshake_read(bytes, &back, &err), err);
    CHECK_INT(back.n_rails, 2);
    bytes[28] = LHI_MAX_RAILS + 1;
    CHECK_INT(lhi_handshake_read(bytes, &back, &err), LH_EIO);
    bytes[28] = 2;
    bytes[9] = LHI_HANDSHAKE_RAIL;
    CHECK_INT(lhi_handshake_read(bytes, &back, &err), LH_EIO);
    bytes[28] = 0;
    CHECK_OK(lhi_handshake_read(bytes, &back, &err), err);
    bytes[9] = LHI_HANDSHAKE_HELLO;
    bytes[8] = LHI_WIRE_VERSION + 1;
    CHECK_INT(lhi_handshake_read(bytes, &back, &err), LH_EIO);
    CHECK_HAS(err.text, "it uses version 7 of the wire format, not 6");
}

static void frames(void)
{
    unsigned char bytes[LHI_FRAME_BYTES];
    lhi_frame f = {.kind = LHI_FRAME_SMALL,
                   .link = 2,
                   .slot = 3,
                   .tag = 4,
                   .size = 5,
                   .entered_ns = 6};
    lhi_frame back;
    lh_error err = {0};
    lhi_frame_write(&f, bytes);
    CHECK_OK(lhi_frame_read(bytes, &back, &err), err);
    CHECK(back.link == 2 && back.slot == 3 && back.tag == 4);
    CHECK(back.size == 5 && back.entered_ns == 6);
    bytes[2] = LHI_WIRE_VERSION + 1;
    CHECK_INT(lhi_frame_read(bytes, &back, &err), LH_EIO);
    CHECK_HAS(err.text, "a frame of version 7, not 6");
    f = (lhi_frame){.kind = LHI_FRAME_ABORT, .id = LHI_CAUSE_RETURN};
    lhi_frame_write(&f, bytes);
    CHECK_OK(lhi_frame_read(bytes, &back, &err), err);
    f.id++;
    lhi_frame_write(&f, bytes);
    CHECK_INT(lhi_frame_read(bytes, &back, &err), LH_EIO);
}

int main(void)
{
    RUN(commands);
    RUN(reports);
    RUN(notices);
    RUN(records);
    RUN(outcomes);
    RUN(proposals);
    RUN(votes);
    RUN(switches);
    RUN(notices_of_changes);
    RUN(sights);
    RUN(cards);
    RUN(greetings);
    RUN(frames);
    return test_summary();
}
