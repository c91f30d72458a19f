/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a schedule with explicit communication for PyTorch. The passes of an
 * overlapped pair are one action of PyTorch, so the trace must be that of a
 * pipeline with overlapped passes. */
#include "interop/export/export_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Communication action kinds. */
enum action_kind { RECEIVE, SEND, WAIT_SEND };

/* A communication action between two passes of a device. */
typedef struct action {
    uint32_t device;
    uint32_t before; /* trace index for the run that follows */
    int64_t at_ns;
    uint32_t message;
    enum action_kind kind;
} action;

/* Export state. */
typedef struct comms {
    const lh_trace *trace;
    uint32_t *first; /* n_devices + 1: first run per device */
    action *actions; /* with capacity for those of all messages */
    uint32_t n;
    uint32_t *n_left; /* per chunk: remaining backward passes */
    bool *begun;      /* per chunk */
    uint32_t n_chunks;
} comms;

/* Returns the index of a device's first run (executed pass) that starts at
 * `at_ns` or later; its runs' end if there is none. */
static uint32_t find_run_from(const comms *m, uint32_t device, int64_t at_ns)
{
    uint32_t low = m->first[device], high = m->first[device + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (m->trace->runs[middle].start_ns < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Checks whether two passes have equal chunk, microbatch and kind. */
static bool is_same_pass(const lh_pass *a, const lh_pass *b)
{
    return a->chunk == b->chunk && a->microbatch == b->microbatch &&
           a->kind == b->kind;
}

/* Returns the index of the first run (executed pass) before which the message
 * can be sent: the one after its producer, even if that takes no time. */
static uint32_t find_run_after_producer(const comms *m,
                                        const lh_trace_message *message)
{
    uint32_t at = find_run_from(m, message->from, message->produced_ns);
    for (uint32_t r = at; r < m->first[message->from + 1] &&
                          m->trace->runs[r].start_ns == message->produced_ns;
         r++)
        if (is_same_pass(&m->trace->runs[r].pass, &message->producer))
            return r + 1;
    return at;
}

/* Checks whether run `r` (an executed pass) is an overlapped pair's B, which
 * PyTorch runs together with the preceding F. */
static bool ends_pair(const comms *m, uint32_t r)
{
    return r < m->trace->n_runs && m->trace->runs[r].pass.overlapped &&
           m->trace->runs[r].pass.kind == LH_B;
}

/* Appends a send, receive or wait for `message` to a device's actions, before
 * run (pass) `before`, or after it if it is an overlapped pair's B. `at_ns`
 * orders the actions before one run. */
static void add_action(comms *m, uint32_t device, uint32_t before,
                       uint32_t message, enum action_kind kind, int64_t at_ns)
{
    if (before < m->first[device + 1] && ends_pair(m, before))
        before++;
    m->actions[m->n++] = (action){.device = device,
                                  .before = before,
                                  .at_ns = at_ns,
                                  .message = message,
                                  .kind = kind};
}

/* Compares communication actions by device, following run (pass) and time, for
 * qsort(), so that both ends of a link have the same order. */
static int compare_actions(const void *a, const void *b)
{
    const action *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->message != y->message)
        return x->message < y->message ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

/* Adds a comma unless the cell is its row's first. */
static void begin_cell(lhi_text *out)
{
    if (out->len && out->data[out->len - 1] != '\n')
        lhi_text_puts(out, ",");
}

/* Adds a communication action's CSV cell: a send, receive or wait, such as
 * 1SEND_F0. */
static void put_action(lhi_text *out, const comms *m, const action *a)
{
    static const char *const names[] = {"RECV_", "SEND_", "WAIT_SEND_"};
    const lh_trace_message *message = &m->trace->messages[a->message];
    bool forward = message->producer.kind == LH_F;
    const lh_pass *of =
        a->kind == RECEIVE ? &message->consumer : &message->producer;
    begin_cell(out);
    lhi_text_printf(out, "%" PRIu32 "%s%c%" PRIu32, of->chunk, names[a->kind],
                    forward ? 'F' : 'B', of->microbatch);
}

/* Adds the CSV action UNSHARD (gathers a chunk's FSDP parameters) before the
 * chunk's first pass; nothing later. */
static void put_unshard(lhi_text *out, comms *m, uint32_t chunk)
{
    if (m->begun[chunk])
        return;
    begin_cell(out);
    lhi_text_printf(out, "%" PRIu32 "UNSHARD", chunk);
    m->begun[chunk] = true;
}

/* Adds the CSV cell of a pass, or of an overlapped pair at its F. UNSHARD
 * (parameter gather) precedes a chunk's first pass; RESHARD and the gradient
 * reduction follow its last. */
static void put_run(lhi_text *out, comms *m, const lh_trace_run *run)
{
    const lh_pass *pass = &run->pass;
    char cell[LH_PASS_TEXT_SIZE], back[LH_PASS_TEXT_SIZE];
    put_unshard(out, m, pass->chunk);
    if (pass->overlapped) {
        const lh_pass *b = &run[1].pass;
        put_unshard(out, m, b->chunk);
        begin_cell(out);
        lhi_text_printf(out, "(%s;%s)OVERLAP_F_B", lh_pass_format(pass, cell),
                        lh_pass_format(b, back));
        pass = b;
    } else {
        begin_cell(out);
        lhi_text_puts(out, lh_pass_format(pass, cell));
    }
    uint32_t chunk = pass->chunk;
    bool last = pass->kind == LH_W || pass->kind == LH_B;
    if (last && --m->n_left[chunk] == 0)
        lhi_text_printf(out,
                        ",%" PRIu32 "RESHARD,%" PRIu32 "REDUCE_GRAD,%" PRIu32
                        "WAIT_REDUCE_GRAD",
                        chunk, chunk, chunk);
}

/* Adds one row per device: its passes with the communication actions between
 * them. */
static void put_rows(lhi_text *out, comms *m)
{
    uint32_t next = 0;
    for (uint32_t d = 0; d < m->trace->n_devices; d++) {
        for (uint32_t r = m->first[d]; r <= m->first[d + 1]; r++) {
            while (next < m->n && m->actions[next].device == d &&
                   m->actions[next].before == r)
                put_action(out, m, &m->actions[next++]);
            if (r < m->first[d + 1] && !ends_pair(m, r))
                put_run(out, m, &m->trace->runs[r]);
        }
        lhi_text_puts(out, "\n");
    }
}

/* Determines the position of all sends, receives and waits between the passes,
 * and sorts them for put_rows(). Also counts the backward passes per chunk. */
static void place_actions(comms *m)
{
    const lh_trace *t = m->trace;
    uint32_t r = 0;
    for (uint32_t d = 0; d < t->n_devices; d++) {
        m->first[d] = r;
        while (r < t->n_runs && t->runs[r].device == d)
            r++;
    }
    m->first[t->n_devices] = r;
    for (r = 0; r < t->n_runs; r++) {
        const lh_pass *pass = &t->runs[r].pass;
        m->n_left[pass->chunk] += pass->kind == LH_W || pass->kind == LH_B;
    }
    for (uint32_t i = 0; i < t->n_messages; i++) {
        const lh_trace_message *message = &t->messages[i];
        int64_t begin = message->produced_ns, end = message->arrive_ns;
        uint32_t behind = find_run_after_producer(m, message);
        /* Waits for the send one pass after its predicted end, so that a sender
         * ahead of the prediction does not block on a receiver behind it. */
        uint32_t there = find_run_from(m, message->from, end) + 1;
        uint32_t last = m->first[message->from + 1];
        add_action(m, message->from, behind, i, SEND, begin);
        add_action(m, message->to, find_run_from(m, message->to, begin), i,
                   RECEIVE, begin);
        there = there > last ? last : there;
        add_action(m, message->from, there > behind ? there : behind, i,
                   WAIT_SEND, end);
    }
    qsort(m->actions, m->n, sizeof *m->actions, compare_actions);
}

/* Returns the number of chunks whose passes are in a trace: the greatest chunk
 * number plus 1. */
static uint32_t count_chunks(const lh_trace *t)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < t->n_runs; r++)
        if (t->runs[r].pass.chunk >= n)
            n = t->runs[r].pass.chunk + 1;
    return n;
}

lh_status lhi_export_pytorch_comms(const lh_trace *trace, char **text,
                                   size_t *len, lh_error *err)
{
    comms m = {.trace = trace, .n_chunks = count_chunks(trace)};
    lhi_text out = {0};
    m.first = calloc(trace->n_devices + (size_t)1, sizeof *m.first);
    m.actions = calloc(3 * (size_t)trace->n_messages + 1, sizeof *m.actions);
    m.n_left = calloc(m.n_chunks + (size_t)1, sizeof *m.n_left);
    m.begun = calloc(m.n_chunks + (size_t)1, sizeof *m.begun);
    lh_status status;
    if (m.first && m.actions && m.n_left && m.begun) {
        place_actions(&m);
        put_rows(&out, &m);
        status = lhi_text_take(&out, text, len, err);
    } else {
        status = lhi_fail_nomem(err);
    }
    free(m.first);
    free(m.actions);
    free(m.n_left);
    free(m.begun);
    return status;
}
