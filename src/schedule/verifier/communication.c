/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a schedule's communication cells, if it has any:
 *
 * 1. every message between devices has one SEND in its producer's row, after
 * the pass that produces it, and one RECV in its consumer's row, before the
 * pass that needs it; no other SEND or RECV exists;
 * 2. per pair of devices, the receives are in the sends' order, since
 *    transports match them by order;
 * 3. the rows run to their end as sequential processes that communicate: a SEND
 *    blocks until its receiver reaches the RECV, or with buffers until fewer
 *    than that number of messages of its pair wait; a RECV blocks until its
 *    message is sent. PyTorch posts both without blocking, but NCCL runs a
 *    device's operations in their order, so the same orders deadlock
 *    (pytorch/pytorch#172668);
 * 4. waits follow their sends; passes run between UNSHARD and RESHARD of their
 *    chunk; REDUCE_GRAD follows its backward passes. */
#include "schedule/verifier/verifier.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A SEND or RECV cell. */
typedef struct end {
    lh_comm comm;
    uint32_t row;
    uint32_t from, to; /* devices of the message */
    uint32_t sender;   /* chunk that sends it */
    bool backward, is_receive;
    bool belongs;   /* to a message of the pipeline, in the right row */
    uint32_t pair;  /* number of its (from, to) */
    uint32_t order; /* position among all cells, row by row */
} end;

/* State of the checks. */
typedef struct communication {
    lhi_verifier *judge;
    end *ends;    /* row by row, in order */
    end **sorted; /* the same, in another order */
    uint32_t n, n_pairs;
    uint32_t *first; /* [row]: its first end; [n_rows]: n */
    bool matched;    /* every message has its two ends, in consistent orders */
} communication;

/* Formats the communication cell of a send or receive into `buffer`, which it
 * returns. */
static const char *format_end(const end *e, char *buffer)
{
    return lh_comm_format(&e->comm, buffer);
}

/* Adds a violation: the send or receive cell `e` breaks a rule (`why`). Then
 * the order of messages is not checked. */
static void add_end_violation(communication *m, const end *e, const char *why)
{
    char text[LH_PASS_TEXT_SIZE];
    m->matched = false;
    lhi_verify_add_violation(m->judge,
                             "device %" PRIu32 ", cell %" PRIu32 ": %s %s",
                             e->row, e->comm.cell, format_end(e, text), why);
}

/* --- 1: ends of messages --- */

/* Returns the device on which a chunk runs. */
static uint32_t get_device(const communication *m, uint32_t chunk)
{
    return lh_pipeline_chunk(m->judge->pipeline, chunk)->device;
}

/* Determines to which message between neighbouring chunks the send or receive
 * cell `e` belongs, and stores that in `e`; adds a violation if there is none.
 * */
static void find_message(communication *m, end *e)
{
    const lhi_verifier *judge = m->judge;
    const uint32_t chunk = e->comm.chunk;
    e->backward =
        e->comm.kind == LH_COMM_SEND_B || e->comm.kind == LH_COMM_RECV_B;
    e->is_receive =
        e->comm.kind == LH_COMM_RECV_F || e->comm.kind == LH_COMM_RECV_B;
    const bool up = e->backward == e->is_receive; /* other end: chunk + 1 */
    if (chunk >= judge->n_chunks ||
        e->comm.microbatch >= judge->n_microbatches ||
        !(up ? lhi_verify_has_next(judge, chunk)
             : lhi_verify_has_previous(judge, chunk))) {
        add_end_violation(m, e, "belongs to no message of this pipeline");
        return;
    }
    const uint32_t other = up ? chunk + 1 : chunk - 1;
    e->sender = e->is_receive ? other : chunk;
    e->from = get_device(m, e->sender);
    e->to = get_device(m, e->is_receive ? chunk : other);
    if (e->from == e->to)
        add_end_violation(m, e,
                          "has both of its chunks on one device, which "
                          "needs no message");
    else if (get_device(m, chunk) != e->row)
        add_end_violation(m, e, "is not in the row of its chunk's device");
    else
        e->belongs = true;
}

/* Checks that a send cell comes after the pass that produces its message in the
 * device's row, and a receive cell before the pass that consumes it. */
static void check_position(communication *m, const end *e)
{
    const lhi_verifier *judge = m->judge;
    const lh_pass forward = {.chunk = e->comm.chunk,
                             .microbatch = e->comm.microbatch,
                             .n_parts = 1,
                             .kind = LH_F};
    const uint32_t node =
        e->backward
            ? lhi_verify_find_gradient(judge, e->comm.chunk, e->comm.microbatch)
            : lhi_verify_find_pass(judge, &forward);
    if (node == LH_NONE || judge->rows[node] != e->row)
        return; /* reported with the passes */
    const uint32_t before = node - judge->first[e->row];
    if (e->is_receive ? before < e->comm.n_before : before >= e->comm.n_before)
        add_end_violation(m, e,
                          e->is_receive
                              ? "comes after the pass that needs it"
                              : "comes before the pass that produces it");
}

/* Orders two numbers: returns -1, 0 or 1 as a < b, a == b or a > b. */
static int compare_u32(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

/* Compares sends and receives by message, then by position of their cells, for
 * qsort(). Those without a message come last. */
static int compare_by_message(const void *a, const void *b)
{
    const end *x = *(end *const *)a, *y = *(end *const *)b;
    int order = (int)y->belongs - (int)x->belongs;
    if (!order)
        order = (int)x->backward - (int)y->backward;
    if (!order)
        order = compare_u32(x->sender, y->sender);
    if (!order)
        order = compare_u32(x->comm.microbatch, y->comm.microbatch);
    if (!order)
        order = (int)x->is_receive - (int)y->is_receive;
    return order ? order : compare_u32(x->order, y->order);
}

/* Checks whether two send or receive cells belong to the same message: equal
 * direction, sending chunk and microbatch. */
static bool same_message(const end *a, const end *b)
{
    return a->backward == b->backward && a->sender == b->sender &&
           a->comm.microbatch == b->comm.microbatch;
}

/* Adds a violation: chunk `sender`'s message, forward or `backward`, for a
 * microbatch lacks its send or, with is_receive, its receive. */
static void add_missing_end(communication *m, bool backward, uint32_t sender,
                            uint32_t microbatch, bool is_receive)
{
    char text[LH_PASS_TEXT_SIZE];
    const uint32_t receiver = backward ? sender - 1 : sender + 1;
    const lh_comm comm = {
        .chunk = is_receive ? receiver : sender,
        .microbatch = microbatch,
        .kind = (uint8_t)(is_receive
                              ? (backward ? LH_COMM_RECV_B : LH_COMM_RECV_F)
                              : (backward ? LH_COMM_SEND_B : LH_COMM_SEND_F))};
    m->matched = false;
    lhi_verify_add_violation(m->judge, "device %" PRIu32 ": %s is missing",
                             get_device(m, comm.chunk),
                             lh_comm_format(&comm, text));
}

/* Checks that one message has exactly one send cell and one receive cell:
 * `ends` has the n cells that name it. */
static void check_message(communication *m, end *const *ends, uint32_t n)
{
    uint32_t counts[2] = {0};
    for (uint32_t i = 0; i < n; i++) {
        char text[LH_PASS_TEXT_SIZE];
        if (counts[ends[i]->is_receive]++ == 0)
            continue;
        m->matched = false;
        lhi_verify_add_violation(m->judge,
                                 "device %" PRIu32 ", cell %" PRIu32
                                 ": %s again; it is cell %" PRIu32 " already",
                                 ends[i]->row, ends[i]->comm.cell,
                                 format_end(ends[i], text),
                                 ends[i - 1]->comm.cell);
    }
    for (int is = 0; is < 2; is++)
        if (counts[is] == 0)
            add_missing_end(m, ends[0]->backward, ends[0]->sender,
                            ends[0]->comm.microbatch, is);
}

/* Adds violations: the forward (or `backward`) messages of microbatches
 * from..to-1 that chunk `sender` sends have neither send nor receive cells. */
static void add_missing_messages(communication *m, bool backward,
                                 uint32_t sender, uint32_t from, uint32_t to)
{
    for (; from < to && !lhi_verify_is_verdict_full(m->judge); from++) {
        add_missing_end(m, backward, sender, from, false);
        add_missing_end(m, backward, sender, from, true);
    }
    if (from < to)
        m->matched = false;
    lhi_verify_count_violations(m->judge, 2 * (uint64_t)(to - from));
}

/* Adds a violation for each missing, repeated or wrong forward (or `backward`)
 * message of chunk `sender`. `ends` has n sends and receives of the schedule,
 * sorted by message, this chunk's first. Returns the number of this chunk's. */
static uint32_t check_sender(communication *m, bool backward, uint32_t sender,
                             end *const *ends, uint32_t n)
{
    uint32_t i = 0, next = 0;
    while (i < n && ends[i]->belongs && ends[i]->backward == backward &&
           ends[i]->sender == sender) {
        uint32_t count = 1;
        while (i + count < n && ends[i + count]->belongs &&
               same_message(ends[i], ends[i + count]))
            count++;
        const uint32_t microbatch = ends[i]->comm.microbatch;
        add_missing_messages(m, backward, sender, next, microbatch);
        check_message(m, ends + i, count);
        next = microbatch + 1;
        i += count;
    }
    add_missing_messages(m, backward, sender, next, m->judge->n_microbatches);
    return i;
}

/* Checks, for each pair of neighbouring chunks, that every message has exactly
 * one send and one receive cell. */
static void check_messages(communication *m)
{
    const lhi_verifier *judge = m->judge;
    uint32_t at = 0;
    qsort(m->sorted, m->n, sizeof *m->sorted, compare_by_message);
    for (int backward = 0; backward < 2; backward++)
        for (uint32_t c = (uint32_t)backward; c + !backward < judge->n_chunks;
             c++) {
            const uint32_t link =
                backward ? judge->backward[c] : judge->forward[c];
            if (link != LHI_SAME_DEVICE)
                at += check_sender(m, backward, c, m->sorted + at, m->n - at);
        }
}

/* --- 2: orders --- */

/* Compares sends and receives by pair of devices, then sends before receives,
 * then by position, for qsort(). */
static int compare_by_pair(const void *a, const void *b)
{
    const end *x = *(end *const *)a, *y = *(end *const *)b;
    int order = compare_u32(x->from, y->from);
    if (!order)
        order = compare_u32(x->to, y->to);
    if (!order)
        order = (int)x->is_receive - (int)y->is_receive;
    return order ? order : compare_u32(x->order, y->order);
}

/* Checks for every pair of devices that the send cells of one and the receive
 * cells of the other name the messages in the same order. Requires that every
 * message has both. */
static void check_orders(communication *m)
{
    qsort(m->sorted, m->n, sizeof *m->sorted, compare_by_pair);
    for (uint32_t i = 0, count; i < m->n; i += count, m->n_pairs++) {
        end *const *ends = m->sorted + i;
        for (count = 0;
             i + count < m->n && ends[count]->from == ends[0]->from &&
             ends[count]->to == ends[0]->to;
             count++)
            ends[count]->pair = m->n_pairs;
        for (uint32_t k = 0; k < count / 2; k++) {
            const end *send = ends[k], *receive = ends[count / 2 + k];
            char sent[LH_PASS_TEXT_SIZE], received[LH_PASS_TEXT_SIZE];
            if (same_message(send, receive))
                continue;
            m->matched = false;
            lhi_verify_add_violation(
                m->judge,
                "device %" PRIu32 ", cell %" PRIu32 ": %s is message %" PRIu32
                " to device %" PRIu32 ", which receives %s there (cell %" PRIu32
                "); sends and receives of a pair must have the same order",
                send->row, send->comm.cell, format_end(send, sent), k,
                receive->row, format_end(receive, received),
                receive->comm.cell);
            break; /* the later ones follow from it */
        }
    }
}

/* --- 3: execution --- */

/* Rows as communicating processes. */
typedef struct execution {
    const communication *m;
    uint32_t buffers;
    uint32_t *at;      /* [row]: its next end */
    uint32_t *waiting; /* [pair]: messages sent and not received */
    uint32_t *stack;   /* rows that may be able to run */
    uint32_t n_stack;
    bool *is_on_stack;
} execution;

/* Pushes a row (cells of one device) on the stack of rows whose next cell may
 * be able to run, unless it is there. */
static void push_row(execution *x, uint32_t row)
{
    if (x->is_on_stack[row])
        return;
    x->is_on_stack[row] = true;
    x->stack[x->n_stack++] = row;
}

/* Returns the next send or receive cell of a device's row that has not run;
 * NULL: all have run. */
static const end *get_next_end(const execution *x, uint32_t row)
{
    const communication *m = x->m;
    return x->at[row] < m->first[row + 1] ? &m->ends[x->at[row]] : NULL;
}

/* Runs the next send or receive cell of a device's row if it does not block;
 * returns whether it ran. */
static bool run_next_cell(execution *x, uint32_t row)
{
    const end *e = get_next_end(x, row);
    if (!e)
        return false;
    const uint32_t other = e->is_receive ? e->from : e->to;
    if (x->buffers == 0) {
        const end *partner = get_next_end(x, other);
        if (!partner || partner->pair != e->pair ||
            partner->is_receive == e->is_receive)
            return false;
        x->at[other]++;
    } else if (e->is_receive) {
        if (x->waiting[e->pair] == 0)
            return false;
        x->waiting[e->pair]--;
    } else {
        if (x->waiting[e->pair] == x->buffers)
            return false;
        x->waiting[e->pair]++;
    }
    x->at[row]++;
    push_row(x, other);
    return true;
}

/* Runs the send and receive cells of all rows as far as possible, with
 * `buffers` buffered messages per pair of devices. Returns whether all rows
 * end. The order of steps does not matter, since a row that can run stays able
 * to. */
static bool run_rows(execution *x, uint32_t buffers)
{
    const communication *m = x->m;
    const uint32_t n_rows = m->judge->n_rows;
    x->buffers = buffers;
    for (uint32_t i = 0; i < m->n_pairs; i++)
        x->waiting[i] = 0;
    for (uint32_t row = 0; row < n_rows; row++) {
        x->at[row] = m->first[row];
        push_row(x, row);
    }
    while (x->n_stack > 0) {
        const uint32_t row = x->stack[--x->n_stack];
        x->is_on_stack[row] = false;
        while (run_next_cell(x, row))
            ;
    }
    for (uint32_t row = 0; row < n_rows; row++)
        if (get_next_end(x, row))
            return false;
    return true;
}

/* Returns the smallest number of buffered messages per pair of devices with
 * which the cells of all rows run to their ends; 0: none suffices. */
static uint32_t find_fewest_buffers(execution *x)
{
    uint32_t low = x->buffers, high = x->m->n;
    if (!run_rows(x, high))
        return 0;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (run_rows(x, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Writes a description of the cycle of devices' rows that wait for each other,
 * starting at `row`, to `out` (`size` bytes). */
static void write_cycle(const execution *x, uint32_t row, char *out,
                        size_t size)
{
    const uint32_t begin = row;
    uint32_t n = 0;
    size_t used = 0;
    out[0] = '\0';
    do {
        const end *e = get_next_end(x, row);
        char text[LH_PASS_TEXT_SIZE];
        const uint32_t other = e->is_receive ? e->from : e->to;
        if (++n <= 4)
            used += (size_t)snprintf(out + used, size - used,
                                     "%sdevice %" PRIu32 " in cell %" PRIu32
                                     " (%s) waits for device %" PRIu32,
                                     n > 1 ? "; " : "", row, e->comm.cell,
                                     format_end(e, text), other);
        row = other;
    } while (row != begin);
    if (n > 4)
        snprintf(out + used, size - used, "; and %" PRIu32 " more", n - 4);
}

/* Adds a violation that names a cycle of device rows that are blocked for ever
 * in the state `x`, with `buffers` messages buffered per pair of devices. */
static void add_deadlock(execution *x, uint32_t buffers)
{
    char cycle[640], remedy[120], model[80];
    uint32_t row = 0;
    while (!get_next_end(x, row))
        row++;
    /* Every row that blocks waits for one that blocks, so this ends in a cycle.
     */
    for (uint32_t i = 0; i < x->m->judge->n_rows; i++) {
        const end *e = get_next_end(x, row);
        row = e->is_receive ? e->from : e->to;
    }
    write_cycle(x, row, cycle, sizeof cycle);
    const uint32_t fewest = find_fewest_buffers(x);
    if (buffers == 0)
        snprintf(model, sizeof model, "where sends wait for their receives");
    else
        snprintf(model, sizeof model,
                 "with %" PRIu32 " buffered message%s per pair of devices",
                 buffers, buffers == 1 ? "" : "s");
    if (fewest)
        snprintf(remedy, sizeof remedy,
                 "; with %" PRIu32 " buffered message%s per pair they run",
                 fewest, fewest == 1 ? "" : "s");
    else
        snprintf(remedy, sizeof remedy, "; no number of buffers suffices");
    lhi_verify_add_violation(x->m->judge, "deadlock %s: %s%s", model, cycle,
                             remedy);
}

/* Executes all rows' cells with `buffers` messages in flight per pair of
 * devices (0: sends block until received). Adds a violation for a deadlock. */
static lh_status check_execution(const communication *m, uint32_t buffers,
                                 lh_error *err)
{
    lhi_arena *mem = m->judge->mem;
    const uint32_t n_rows = m->judge->n_rows;
    execution x = {.m = m,
                   .at = LHI_NEW(mem, uint32_t, n_rows),
                   .waiting = LHI_NEW(mem, uint32_t, m->n_pairs),
                   .stack = LHI_NEW(mem, uint32_t, n_rows),
                   .is_on_stack = LHI_NEW(mem, bool, n_rows)};
    if (!x.at || !x.waiting || !x.stack || !x.is_on_stack)
        return lhi_fail_nomem(err);
    if (!run_rows(&x, buffers))
        add_deadlock(&x, buffers);
    return LH_OK;
}

/* --- 4: other cells --- */

/* Effects on a chunk of the row's cells before the current one. */
typedef struct chunk_state {
    bool is_sharded_chunk; /* the row has UNSHARD cells of it */
    bool unsharded, reduced;
    uint32_t n_passes, n_backward; /* so far */
    uint32_t backward_total;
} chunk_state;

/* Checks whether a pass completes a microbatch's backward: B or W. */
static bool is_backward_end(const lh_pass *pass)
{
    return pass->kind == LH_B || pass->kind == LH_W;
}

/* Adds a violation: a communication cell breaks a rule (`why`) in its device's
 * row. */
static void add_row_violation(communication *m, uint32_t row,
                              const lh_comm *comm, const char *why)
{
    char text[LH_PASS_TEXT_SIZE];
    lhi_verify_add_violation(m->judge,
                             "device %" PRIu32 ", cell %" PRIu32 ": %s %s", row,
                             comm->cell, lh_comm_format(comm, text), why);
}

/* Checks that a cell UNSHARD, RESHARD or REDUCE_GRAD, or the wait for the
 * latter, is allowed in the chunk's state *state, and updates that state. */
static void check_parameter_cell(communication *m, uint32_t row,
                                 const lh_comm *comm, chunk_state *state)
{
    switch (comm->kind) {
    case LH_COMM_UNSHARD:
        if (state->unsharded)
            add_row_violation(m, row, comm, "finds the chunk unsharded");
        state->unsharded = true;
        break;
    case LH_COMM_RESHARD:
        if (!state->unsharded)
            add_row_violation(m, row, comm, "finds the chunk sharded");
        state->unsharded = false;
        break;
    case LH_COMM_REDUCE_GRAD:
        if (state->reduced)
            add_row_violation(m, row, comm, "is there twice");
        if (state->n_backward < state->backward_total)
            add_row_violation(m, row, comm,
                              "comes before the chunk's last backward pass");
        state->reduced = true;
        break;
    default:
        if (!state->reduced)
            add_row_violation(m, row, comm, "comes before REDUCE_GRAD");
        break;
    }
}

/* Checks the passes number *pass to `until` - 1 of a device's row, which
 * precede its next communication cell: the parameters of their chunks must be
 * unsharded. Advances *pass. */
static void check_passes_until(communication *m, uint32_t row, uint32_t *pass,
                               uint32_t until, chunk_state *chunks)
{
    const lhi_verifier *judge = m->judge;
    for (; *pass < until; ++*pass) {
        const uint32_t node = judge->first[row] + *pass;
        const lh_pass *p = &judge->passes[node];
        if (p->chunk >= judge->n_chunks)
            continue;
        chunk_state *state = &chunks[p->chunk];
        state->n_backward += is_backward_end(p);
        if (state->is_sharded_chunk && !state->unsharded) {
            char text[LH_PASS_TEXT_SIZE];
            lhi_verify_add_violation(m->judge,
                                     "device %" PRIu32 ", cell %" PRIu32
                                     ": %s runs while its chunk is sharded",
                                     row, lhi_verify_get_cell(judge, node),
                                     lh_pass_format(p, text));
        }
    }
}

/* Checks the cells UNSHARD, RESHARD and REDUCE_GRAD of one device's row, and
 * that the parameters of each pass's chunk are unsharded. */
static void check_row(communication *m, uint32_t row, chunk_state *chunks)
{
    const lhi_verifier *judge = m->judge;
    uint32_t n, pass = 0;
    const uint32_t n_passes = judge->first[row + 1] - judge->first[row];
    const lh_comm *comms = lh_schedule_comms(judge->schedule, row, &n);
    for (uint32_t i = 0; i < n_passes; i++) {
        const lh_pass *p = &judge->passes[judge->first[row] + i];
        if (p->chunk < judge->n_chunks)
            chunks[p->chunk].backward_total += is_backward_end(p);
    }
    for (uint32_t i = 0; i < n; i++)
        if (comms[i].kind == LH_COMM_UNSHARD &&
            comms[i].chunk < judge->n_chunks)
            chunks[comms[i].chunk].is_sharded_chunk = true;
    for (uint32_t i = 0; i < n; i++) {
        check_passes_until(m, row, &pass, comms[i].n_before, chunks);
        if (comms[i].kind <= LH_COMM_RECV_B)
            continue;
        if (comms[i].chunk >= judge->n_chunks ||
            get_device(m, comms[i].chunk) != row)
            add_row_violation(m, row, &comms[i],
                              "is not in the row of its chunk's device");
        else if (comms[i].kind > LH_COMM_WAIT_SEND_B)
            check_parameter_cell(m, row, &comms[i], &chunks[comms[i].chunk]);
    }
    check_passes_until(m, row, &pass, n_passes, chunks);
}

/* Finds the send that the cell `wait` waits for, after the ends are sorted by
 * message; returns NULL if there is none. */
static const end *find_send(const communication *m, uint32_t row,
                            const lh_comm *wait)
{
    const end key = {.comm = *wait,
                     .sender = wait->chunk,
                     .backward = wait->kind == LH_COMM_WAIT_SEND_B,
                     .belongs = true};
    const end *const wanted = &key;
    uint32_t low = 0, high = m->n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (compare_by_message(&m->sorted[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == m->n || !m->sorted[low]->belongs || m->sorted[low]->is_receive ||
        !same_message(m->sorted[low], &key) || m->sorted[low]->row != row)
        return NULL;
    return m->sorted[low];
}

/* Checks that every cell that waits for a send follows this send in the same
 * device's row. */
static void check_waits(communication *m)
{
    for (uint32_t row = 0; row < m->judge->n_rows; row++) {
        uint32_t n;
        const lh_comm *comms = lh_schedule_comms(m->judge->schedule, row, &n);
        for (uint32_t i = 0; i < n; i++) {
            if (comms[i].kind != LH_COMM_WAIT_SEND_F &&
                comms[i].kind != LH_COMM_WAIT_SEND_B)
                continue;
            const end *send = find_send(m, row, &comms[i]);
            if (!send)
                add_row_violation(m, row, &comms[i], "has no send in its row");
            else if (send->comm.cell > comms[i].cell)
                add_row_violation(m, row, &comms[i], "comes before its send");
        }
    }
}

/* --- all --- */

/* Collects the send and receive cells of all devices' rows into one list. */
static lh_status collect_ends(communication *m, lh_error *err)
{
    const lhi_verifier *judge = m->judge;
    const lh_schedule *s = judge->schedule;
    const uint32_t most = lh_schedule_n_comms(s);
    m->ends = LHI_NEW(judge->mem, end, most);
    m->sorted = LHI_NEW(judge->mem, end *, most);
    m->first = LHI_NEW(judge->mem, uint32_t, (size_t)judge->n_rows + 1);
    if (!m->ends || !m->sorted || !m->first)
        return lhi_fail_nomem(err);
    for (uint32_t row = 0; row < judge->n_rows; row++) {
        uint32_t n;
        const lh_comm *comms = lh_schedule_comms(s, row, &n);
        m->first[row] = m->n;
        for (uint32_t i = 0; i < n; i++)
            if (comms[i].kind <= LH_COMM_RECV_B) {
                m->sorted[m->n] = &m->ends[m->n];
                m->ends[m->n] =
                    (end){.comm = comms[i], .row = row, .order = m->n};
                m->n++;
            }
    }
    m->first[judge->n_rows] = m->n;
    return LH_OK;
}

lh_status lhi_verify_check_communication(lhi_verifier *judge, uint32_t buffers,
                                         lh_error *err)
{
    communication m = {.judge = judge, .matched = true};
    if (lh_schedule_n_comms(judge->schedule) == 0 ||
        judge->n_rows != judge->n_devices)
        return LH_OK;
    LHI_TRY(collect_ends(&m, err));
    chunk_state *chunks = LHI_NEW(judge->mem, chunk_state, judge->n_chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < m.n; i++) {
        find_message(&m, &m.ends[i]);
        if (m.ends[i].belongs)
            check_position(&m, &m.ends[i]);
    }
    for (uint32_t row = 0; row < judge->n_rows; row++)
        check_row(&m, row, chunks);
    if (m.n > 0)
        check_messages(&m);
    check_waits(&m);
    if (m.n == 0)
        return LH_OK; /* only cells on parameters */
    if (m.matched)
        check_orders(&m);
    return m.matched ? check_execution(&m, buffers, err) : LH_OK;
}
