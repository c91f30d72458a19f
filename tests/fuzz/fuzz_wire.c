/* SPDX-License-Identifier: Apache-2.0 */
/* Input: bytes from a peer. By their first bytes they are parsed as handshakes,
 * engine messages or rail segment headers, otherwise as frames for an endpoint
 * with a few posted sends and receives. Sufficiently long inputs are also
 * parsed as address-exchange messages. Every message that parses must be
 * written as the same bytes again. */
#define _GNU_SOURCE
#include "base/bytes.h"
#include "fuzz.h"

#include "runtime/engine/control_messages.h"
#include "runtime/engine/rank_assignment.h"
#include "runtime/transport/address_exchange.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/protocol.h"
#include "runtime/transport/wire_format.h"

#include <sys/mman.h>

enum { N_OPS = 6, LARGE_BYTES = LHI_NET_EAGER_BYTES + 1000 };

static void greetings(const uint8_t *data, size_t size)
{
    while (size >= LHI_HANDSHAKE_BYTES) {
        lhi_handshake_message h;
        lh_error err = {0};
        unsigned char again[LHI_HANDSHAKE_BYTES];
        lh_status status = lhi_handshake_read(data, &h, &err);
        if (status != LH_OK) {
            fuzz_refused(status, &err, NULL);
            return;
        }
        lhi_handshake_write(&h, again);
        REQUIRE(memcmp(again, data, sizeof again) == 0, "another greeting");
        data += LHI_HANDSHAKE_BYTES;
        size -= LHI_HANDSHAKE_BYTES;
        if (h.more > size)
            return;
        char text[64];
        lhi_wire_sanitise_text(data, h.more, text, sizeof text);
        REQUIRE(strlen(text) < sizeof text, "too long");
        data += h.more;
        size -= h.more;
    }
}

/* Parses consecutive segment headers of a rail. */
static void rail_heads(const uint8_t *data, size_t size)
{
    for (; size >= LHI_RAIL_HEAD;
         data += LHI_RAIL_HEAD, size -= LHI_RAIL_HEAD) {
        lhi_rail_head h;
        lh_error err = {0};
        unsigned char again[LHI_RAIL_HEAD];
        lh_status status = lhi_rail_head_read(data, &h, &err);
        if (status != LH_OK) {
            fuzz_refused(status, &err, NULL);
            return;
        }
        lhi_rail_head_write(&h, again);
        REQUIRE(memcmp(again, data, sizeof again) == 0, "another segment");
    }
}

/* Parses the bytes as every type of address-exchange message. The input holds
 * at least the bytes of the largest one. */
static void cards(const uint8_t *data)
{
    static lhi_ucx_record ucx;
    unsigned char again[LHI_UCX_RECORD_BYTES];
    lhi_shared_links_location share;
    lhi_start_record start;
    lh_error err = {0};
    lh_status status = lhi_shared_links_location_read(data, &share, &err);
    if (status == LH_OK) {
        lhi_shared_links_location_write(&share, again);
        REQUIRE(memcmp(again, data, LHI_SHARED_LINKS_LOCATION_BYTES) == 0,
                "another share");
    } else {
        fuzz_refused(status, &err, NULL);
    }
    status = lhi_start_record_read(data, &start, &err);
    if (status == LH_OK) {
        lhi_start_record_write(&start, again);
        REQUIRE(memcmp(again, data, LHI_START_RECORD_BYTES) == 0,
                "another card");
    } else {
        fuzz_refused(status, &err, NULL);
    }
    status = lhi_ucx_record_read(data, &ucx, &err);
    if (status == LH_OK) {
        lhi_ucx_record_write(&ucx, again);
        REQUIRE(memcmp(again, data, LHI_UCX_RECORD_BYTES) == 0, "another card");
    } else {
        fuzz_refused(status, &err, NULL);
    }
}

/* Parses a rank's recorded passes: the counts, then the rows. Returns the bytes
 * consumed, or 0 if the input is malformed. */
static size_t recorded(const uint8_t *data, size_t size)
{
    lhi_record_counts counts;
    lh_error err = {0};
    unsigned char again[LHI_RECORD_COUNTS_BYTES];
    if (size < LHI_RECORD_COUNTS_BYTES)
        return 0;
    lh_status status =
        lhi_record_counts_read(data, LHI_RECORD_COUNTS_BYTES, &counts, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, NULL);
        return 0;
    }
    lhi_record_counts_write(&counts, again);
    REQUIRE(memcmp(again, data, sizeof again) == 0, "other counts");
    size_t n = lhi_record_rows_size(&counts);
    if (n > size - LHI_RECORD_COUNTS_BYTES)
        return 0;
    lhi_pass_record *records = calloc(counts.n_passes + 1u, sizeof *records);
    lhi_collective_record *played =
        calloc(counts.n_collectives + 1u, sizeof *played);
    unsigned char *rows = malloc(n + 1);
    REQUIRE(records && played && rows, "no memory");
    data += LHI_RECORD_COUNTS_BYTES;
    status = lhi_record_rows_read(data, n, &counts, records, played, &err);
    if (status == LH_OK) {
        lhi_record_rows_write(&counts, records, played, rows);
        REQUIRE(memcmp(rows, data, n) == 0, "other rows");
    } else {
        fuzz_refused(status, &err, NULL);
    }
    free(records);
    free(played);
    free(rows);
    return status == LH_OK ? LHI_RECORD_COUNTS_BYTES + n : 0;
}

/* Parses a rank's observation of a step; the number of passes is taken from the
 * input. */
static void seen(const uint8_t *data, size_t size)
{
    enum { MOST = 4096 };
    lh_error err = {0};
    if (size < LHI_OBSERVATION_HEADER_BYTES)
        return;
    lhi_observation_header head = {
        (uint32_t)lhi_load_little_endian(data + 4, 4),
        (uint32_t)lhi_load_little_endian(data + 8, 4),
        (uint32_t)lhi_load_little_endian(data + 12, 4), 0};
    if (head.n_passes > MOST || head.n_collectives > MOST || head.n_hops > MOST)
        return;
    size_t n = lhi_observation_size(&head);
    lhi_pass_observation *rows = calloc(head.n_passes + 1u, sizeof *rows);
    lhi_collective_record *played =
        calloc(head.n_collectives + 1u, sizeof *played);
    lhi_hop_observation *hops = calloc(head.n_hops + 1u, sizeof *hops);
    unsigned char *again = malloc(n);
    REQUIRE(rows && played && hops && again, "no memory");
    lh_status status =
        lhi_observation_read(data, size, &head, rows, played, hops, &err);
    if (status == LH_OK) {
        lhi_observation_write(&head, rows, played, hops, again);
        REQUIRE(memcmp(again, data, n) == 0, "something else was seen");
    } else {
        fuzz_refused(status, &err, NULL);
    }
    free(rows);
    free(played);
    free(hops);
    free(again);
}

/* Parses up to `n` change notices. Returns the bytes consumed, or SIZE_MAX if
 * one is malformed. */
static size_t notices(const uint8_t *data, size_t size, uint32_t n)
{
    lh_error err;
    lhi_adapt_notice row;
    unsigned char again[LHI_ADAPT_NOTICE_BYTES];
    size_t done = 0;
    for (; n && size - done >= LHI_ADAPT_NOTICE_BYTES;
         n--, done += LHI_ADAPT_NOTICE_BYTES) {
        lh_status status = lhi_adapt_notice_read(
            data + done, LHI_ADAPT_NOTICE_BYTES, &row, &err);
        if (status != LH_OK) {
            fuzz_refused(status, &err, NULL);
            return SIZE_MAX;
        }
        lhi_adapt_notice_write(&row, again);
        REQUIRE(memcmp(again, data + done, sizeof again) == 0,
                "another adaptation notice");
    }
    return done;
}

/* Parses a rank assignment for two chunks with five layers on two ranks. */
static void seats(const uint8_t *data, size_t size)
{
    const lhi_rank_assignment_limits seating = {
        .n_chunks = 2, .n_places = 2, .n_layers = 5};
    lhi_rank_assignment s, same;
    lh_error err = {0};
    char *again = NULL;
    lh_status status = lhi_rank_assignment_parse(
        (const char *)data, (uint32_t)size, &seating, &s, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, NULL);
        return;
    }
    MUST(lhi_rank_assignment_format(&s, &again, &err), err);
    MUST(lhi_rank_assignment_parse(again, (uint32_t)strlen(again), &seating,
                                   &same, &err),
         err);
    REQUIRE(lhi_rank_assignment_equal(&s, &same), "other seats");
    lh_text_free(again);
    lhi_rank_assignment_fini(&s);
    lhi_rank_assignment_fini(&same);
}

static void outcome(const uint8_t *data, size_t size)
{
    lhi_outcome o;
    lh_error err = {0};
    unsigned char again[LHI_ITERATION_BYTES];
    size_t head = size < LHI_OUTCOME_BYTES ? size : LHI_OUTCOME_BYTES;
    lh_status status = lhi_outcome_head_read(data, head, &o, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, NULL);
        return;
    }
    lhi_outcome_head_write(&o, again);
    REQUIRE(memcmp(again, data, head) == 0, "another outcome");
    data += head;
    size -= head;
    for (; o.n_iterations && size >= LHI_ITERATION_BYTES; o.n_iterations--) {
        lh_iteration it = lhi_iteration_read(data);
        lhi_iteration_write(&it, again);
        REQUIRE(memcmp(again, data, sizeof again) == 0, "another iteration");
        data += LHI_ITERATION_BYTES;
        size -= LHI_ITERATION_BYTES;
    }
    for (; o.n_switches && size >= LHI_SWITCH_BYTES; o.n_switches--) {
        lhi_switch row;
        unsigned char row_again[LHI_SWITCH_BYTES];
        status = lhi_switch_read(data, LHI_SWITCH_BYTES, &row, &err);
        if (status != LH_OK) {
            fuzz_refused(status, &err, NULL);
            return;
        }
        lhi_switch_write(&row, row_again);
        REQUIRE(memcmp(row_again, data, sizeof row_again) == 0, "another row");
        data += LHI_SWITCH_BYTES;
        size -= LHI_SWITCH_BYTES;
        if (row.n_assignment > size)
            return;
        seats(data, row.n_assignment);
        data += row.n_assignment;
        size -= row.n_assignment;
    }
    size_t told = notices(data, size, o.n_notices);
    if (told == SIZE_MAX)
        return;
    data += told;
    size -= told;
    if (lhi_proposal_texts_size(&o.texts) > size)
        return;
    data += lhi_proposal_texts_size(&o.texts);
    size -= lhi_proposal_texts_size(&o.texts);
    size_t n;
    for (; o.n_recorded && (n = recorded(data, size)) > 0; o.n_recorded--) {
        data += n;
        size -= n;
    }
}

/* Parses one engine message as every message type. */
static void engine_messages(const uint8_t *data, size_t size)
{
    unsigned char again[LHI_VOTE_BYTES];
    lhi_command command;
    lhi_proposal proposal;
    lhi_vote vote;
    lhi_command_report done;
    int64_t posted_ns;
    lh_error err = {0};
    if (lhi_command_read(data, size, &command, &err) == LH_OK) {
        lhi_command_write(&command, again);
        REQUIRE(memcmp(again, data, size) == 0, "another command");
    } else if (lhi_command_report_read(data, size, &done, &err) == LH_OK) {
        lhi_command_report_write(&done, again);
        REQUIRE(memcmp(again, data, size) == 0, "another report");
    } else if (lhi_receive_notice_read(data, size, &posted_ns, &err) == LH_OK) {
        lhi_receive_notice_write(posted_ns, again);
        REQUIRE(memcmp(again, data, size) == 0, "another notice");
    } else if (lhi_proposal_read(data, size, &proposal, &err) == LH_OK) {
        lhi_proposal_write(&proposal, again);
        REQUIRE(memcmp(again, data, size) == 0, "another proposal");
    } else if (lhi_vote_read(data, size, &vote, &err) == LH_OK) {
        lhi_vote_write(&vote, again);
        REQUIRE(memcmp(again, data, size) == 0, "another vote");
    } else {
        fuzz_refused(LH_EIO, &err, NULL);
    }
    recorded(data, size);
    seen(data, size);
    notices(data, size, 1);
    if (size < UINT32_MAX)
        seats(data, size);
    outcome(data, size);
}

/* Carrier operation that discards the frame after a round trip through its
 * encoding. */
static lh_status nowhere(lhi_proto *p, uint32_t to, const lhi_frame *f,
                         const void *payload, lhi_net_op *op, lh_error *err)
{
    unsigned char bytes[LHI_FRAME_BYTES];
    lhi_frame again;
    (void)to, (void)payload;
    lhi_frame_write(f, bytes);
    MUST(lhi_frame_read(bytes, &again, err), *err);
    REQUIRE(again.kind == f->kind && again.size == f->size, "another frame");
    if (op)
        lhi_proto_payload_sent(p, op, LH_OK);
    return LH_OK;
}

static lh_status expect(lhi_proto *p, lhi_net_op *op, lh_error *err)
{
    (void)p, (void)op, (void)err;
    return LH_OK;
}

static bool withdraw(lhi_proto *p, lhi_net_op *op)
{
    (void)p, (void)op;
    return false;
}

static void note(lhi_net *net, const char *reason)
{
    lhi_failure_set(net->failure, net->rank, reason);
}

/* Consumes one frame and its payload. Returns false if the endpoint would close
 * the connection. */
static bool take_frame(lhi_proto *p, const uint8_t **data, size_t *size)
{
    lhi_frame f;
    lh_error err = {0};
    unsigned char again[LHI_FRAME_BYTES];
    if (*size < LHI_FRAME_BYTES)
        return false;
    lh_status status = lhi_frame_read(*data, &f, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, NULL);
        return false;
    }
    lhi_frame_write(&f, again);
    REQUIRE(memcmp(again, *data, sizeof again) == 0, "another frame");
    *data += LHI_FRAME_BYTES;
    *size -= LHI_FRAME_BYTES;
    void *into = NULL;
    lhi_net_op *op = NULL;
    lhi_unexpected *kept = NULL;
    status = lhi_proto_frame_received(p, 1, &f, &into, &op, &kept, &err);
    if (status != LH_OK) {
        fuzz_refused(status, &err, NULL);
        return false;
    }
    uint64_t payload = lhi_frame_payload(&f);
    if (payload > *size) { /* input ends within the frame */
        free(kept);
        return false;
    }
    if (into)
        memcpy(into, *data, payload);
    *data += payload;
    *size -= payload;
    return lhi_proto_payload_received(p, op, kept, &err) == LH_OK;
}

static void frames(const uint8_t *data, size_t size)
{
    static unsigned char bytes[N_OPS][LARGE_BYTES];
    static const lhi_carrier carrier = {nowhere, expect, withdraw};
    static const lhi_net_ops ops = {
        "fuzz",           lhi_proto_send, lhi_proto_receive,
        lhi_proto_cancel, note,           NULL};
    lhi_failure failure = {0};
    lh_error err = {0};
    const lhi_net_link link = {10, 10, 1, LHI_LINK_UNSHARED};
    size_t links_bytes = lhi_links_bytes(1);
    lhi_links *links = mmap(NULL, links_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(links != MAP_FAILED, "no memory");
    MUST(lhi_links_init(links, 1, &link, &err), err);
    lhi_proto p = {
        .net = {.ops = &ops, .n_ranks = 2, .links = links, .failure = &failure},
        .carrier = &carrier};
    MUST(lhi_proto_init(&p, &err), err);
    lhi_net_op op[N_OPS] = {{0}};
    /* Posts receives with tags 0 to 3, two per size, and sends with tags 4 and
     * 5. */
    for (uint32_t i = 0; i < N_OPS; i++) {
        size_t n = i % 2 ? LARGE_BYTES : 8;
        if (i < 4)
            MUST(lhi_net_receive(&p.net, 1, i, bytes[i], n, &op[i], &err), err);
        else
            MUST(lhi_net_send(&p.net, 1, i, bytes[i], LARGE_BYTES,
                              LHI_NET_NO_LINK, 0, LHI_NET_NO_TURN, &op[i],
                              &err),
                 err);
    }
    pthread_mutex_lock(&p.lock);
    while (take_frame(&p, &data, &size))
        ;
    pthread_mutex_unlock(&p.lock);
    note(&p.net, "over");
    for (uint32_t i = 0; i < N_OPS; i++)
        lhi_net_wait(&p.net, &op[i], 1, &err);
    lhi_proto_drain(&p);
    lhi_proto_fini(&p);
    lhi_links_fini(links);
    munmap(links, links_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= LHI_UCX_RECORD_BYTES)
        cards(data);
    if (size >= 8 && memcmp(data, "longhaul", 8) == 0)
        greetings(data, size);
    else if (size >= 2 && memcmp(data, "LE", 2) == 0)
        engine_messages(data, size);
    else if (size >= 2 && memcmp(data, "LR", 2) == 0)
        rail_heads(data, size);
    else
        frames(data, size);
    return 0;
}
