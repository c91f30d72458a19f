/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between stages: matches sends and receives with passes, and adds
 * their dependencies. */
#include "report/diagnosis/step_dependencies_internal.h"

#include <string.h>

/* Checks whether a recorded operation is a forward pass. */
static bool is_forward(const lhi_op_row *row)
{
    return row->op == LHI_OP_FORWARD;
}

/* Checks whether a recorded operation is a backward pass that sends a gradient:
 * B or D. */
static bool is_backward(const lhi_op_row *row)
{
    return row->op == LHI_OP_BACKWARD || row->op == LHI_OP_INPUT;
}

/* Returns the neighbouring chunk on another stage that consumes pass `row`'s
 * output (if `out`), or else produces its input; LH_NONE if there is none. */
static uint32_t find_neighbour_chunk(const lhi_dependency_search *w,
                                     const lhi_op_row *row, bool out)
{
    uint32_t chunk = (uint32_t)lhi_step_pass_chunk(w->ops, row);
    bool up = is_forward(row) == out;
    if (!is_forward(row) && !is_backward(row))
        return LH_NONE;
    if (up ? chunk + 1 == w->out->n_chunks : chunk == 0)
        return LH_NONE;
    uint32_t other = up ? chunk + 1 : chunk - 1;
    return w->stages[other] == w->stages[chunk] ? LH_NONE : other;
}

/* --- messages and their passes -------------------------------------------- */

/* The messages of one kind and direction on a worker, with their passes. */
typedef struct message_list {
    uint32_t worker;
    lhi_op_type op;
    bool out;              /* sends, not receives */
    uint32_t first, n;     /* its row range */
    const uint32_t *users; /* passes that produce or consume one message each */
    uint32_t n_users;
} message_list;

static const int64_t tolerance_ns = 1000000; /* 1 ms tolerance between starts
                                              * and ends */

/* Checks whether message `row`'s times are consistent with pass `pass`: a send
 * starts after it, a receive ends before it. */
static bool fits(const lhi_dependency_search *w, const message_list *l,
                 uint32_t row, uint32_t pass)
{
    const lhi_op_row *m = &w->ops->rows[row], *p = &w->ops->rows[pass];
    return l->out ? m->start_ns + tolerance_ns >= lhi_row_end(p)
                  : lhi_row_end(m) <= p->start_ns + tolerance_ns;
}

/* Maximum number of messages that belong to no pass of the step. */
enum { MAX_STRAYS = 64 };

/* Returns the index of the first message in the list that belongs to the step.
 * A profile may contain messages for passes before or after it; chooses the
 * offset with the fewest inconsistent messages. */
static uint32_t find_first_message(const lhi_dependency_search *w,
                                   const message_list *l)
{
    uint32_t best = 0, least = UINT32_MAX;
    for (uint32_t at = 0; at + l->n_users <= l->n; at++) {
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < l->n_users; i++)
            wrong += !fits(w, l, l->first + at + i, l->users[i]);
        if (wrong < least) {
            least = wrong;
            best = at;
        }
    }
    return best;
}

/* Assigns messages to passes in order; marks surplus messages as strays, which
 * the replay ignores. */
static void match_messages(lhi_dependency_search *w, const message_list *l)
{
    if (l->n == 0)
        return;
    if (l->n_users == 0) {
        w->out->reason = "messages refer to an absent stage";
        return;
    }
    if (l->n < l->n_users || l->n - l->n_users > MAX_STRAYS) {
        w->out->reason = "a rank's numbers of messages and passes differ";
        return;
    }
    uint32_t at = l->n == l->n_users ? 0 : find_first_message(w, l);
    for (uint32_t i = 0; i < l->n; i++)
        w->out->is_stray[l->first + i] = i < at || i >= at + l->n_users;
    uint32_t *of = l->out ? w->message_out : w->message_in;
    for (uint32_t i = 0; i < l->n_users; i++) {
        uint32_t row = l->first + at + i;
        of[l->users[i]] = row;
        if (i && (l->out || !w->ops->is_preposted))
            lhi_dependency_add(w, row, row - 1);
        if (l->out)
            lhi_dependency_add(w, row, l->users[i]);
    }
    w->out->n_strays += l->n - l->n_users;
}

/* Matches a worker's recorded sends and receives, of activations and gradients,
 * with its passes. `room`: scratch array, one entry per pass. */
static void match_worker_messages(lhi_dependency_search *w, uint32_t worker,
                                  uint32_t *room)
{
    static const struct {
        lhi_op_type op;
        bool forward, out;
    } lanes[] = {{LHI_OP_FORWARD_SEND, true, true},
                 {LHI_OP_FORWARD_RECV, true, false},
                 {LHI_OP_BACKWARD_SEND, false, true},
                 {LHI_OP_BACKWARD_RECV, false, false}};
    for (uint32_t k = 0; k < 4; k++) {
        message_list l = {.worker = worker,
                          .op = lanes[k].op,
                          .out = lanes[k].out,
                          .users = room};
        l.n = lhi_rows_of_kind(w->ops, worker, l.op, &l.first);
        for (uint32_t i = w->first_pass[worker]; i < w->first_pass[worker + 1];
             i++) {
            const lhi_op_row *row = &w->ops->rows[w->passes[i]];
            if ((lanes[k].forward ? is_forward(row) : is_backward(row)) &&
                find_neighbour_chunk(w, row, l.out) != LH_NONE)
                room[l.n_users++] = w->passes[i];
        }
        match_messages(w, &l);
    }
}

/* --- launches ------------------------------------------------------------- */

/* Makes a worker's messages wait, in the replay, for the passes that launch
 * them. A receive is launched after the preceding pass of the same
 * direction; the messages of the first backward pass after the second-last
 * pass before it. */
static void add_launch_dependencies(lhi_dependency_search *w, uint32_t worker)
{
    const uint32_t *passes = &w->passes[w->first_pass[worker]];
    uint32_t n = w->first_pass[worker + 1] - w->first_pass[worker];
    uint32_t before[2] = {LH_NONE, LH_NONE}; /* forward, backward */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pass = passes[i];
        bool backward = is_backward(&w->ops->rows[pass]);
        if (!backward && !is_forward(&w->ops->rows[pass]))
            continue;
        uint32_t in = w->message_in[pass], out = w->message_out[pass];
        if (backward && before[1] == LH_NONE && i >= 2) {
            if (in != LH_NONE && !w->ops->is_preposted)
                lhi_dependency_add(w, in, passes[i - 2]);
            if (out != LH_NONE)
                lhi_dependency_add(w, out, passes[i - 2]);
        } else if (in != LH_NONE && before[backward] != LH_NONE &&
                   !w->ops->is_preposted) {
            lhi_dependency_add(w, in, before[backward]);
        }
        before[backward] = pass;
    }
}

/* --- dependencies between passes ------------------------------------------ */

/* One replica's pass index. */
typedef struct pass_index {
    /* forward and backward passes at chunk * n + microbatch */
    uint32_t *rows[2];
    size_t n;
} pass_index;

/* Stores a replica's forward and backward passes in the index `b` by chunk and
 * microbatch; a pass that occurs twice becomes the step's defect. */
static void index_replica(lhi_dependency_search *w, uint32_t replica,
                          pass_index *b)
{
    uint32_t from = w->first_pass[replica * w->ops->n_stages];
    uint32_t to = w->first_pass[(replica + 1) * w->ops->n_stages];
    memset(b->rows[0], 0xff, b->n * sizeof **b->rows);
    memset(b->rows[1], 0xff, b->n * sizeof **b->rows);
    for (uint32_t i = from; i < to; i++) {
        const lhi_op_row *row = &w->ops->rows[w->passes[i]];
        bool backward = is_backward(row);
        if (!backward && !is_forward(row))
            continue;
        uint32_t *at =
            &b->rows[backward][(size_t)lhi_step_pass_chunk(w->ops, row) *
                                   w->out->n_microbatches +
                               (uint32_t)row->microbatch];
        if (*at != LH_NONE)
            w->out->reason = "a pass appears twice";
        *at = w->passes[i];
    }
}

/* Makes a pass depend on its input's producer: through a message, or directly
 * if none was recorded. */
static void add_input_dependency(lhi_dependency_search *w, uint32_t pass,
                                 const pass_index *b)
{
    const lhi_op_row *row = &w->ops->rows[pass];
    uint32_t chunk = find_neighbour_chunk(w, row, false);
    if (chunk == LH_NONE)
        return;
    uint32_t maker =
        b->rows[is_backward(row)][(size_t)chunk * w->out->n_microbatches +
                                  (uint32_t)row->microbatch];
    if (maker == LH_NONE) {
        w->out->reason = "a pass is missing";
        return;
    }
    uint32_t in = w->message_in[pass], out = w->message_out[maker];
    if ((in == LH_NONE) != (out == LH_NONE)) {
        w->out->reason = "a message lacks its send or its receive";
    } else if (in == LH_NONE) {
        lhi_dependency_add(w, pass, maker);
    } else {
        lhi_dependency_add(w, pass, in);
        lhi_dependency_group(w, in, out);
    }
}

lh_status lhi_dependencies_add_messages(lhi_dependency_search *w, lh_error *err)
{
    const lhi_step_ops *ops = w->ops;
    pass_index b = {.n = (size_t)w->out->n_chunks * w->out->n_microbatches};
    uint32_t *room = LHI_NEW(w->arena, uint32_t, ops->n);
    for (uint32_t i = 0; room && i < ops->n_workers && !w->out->reason; i++) {
        match_worker_messages(w, i, room);
        add_launch_dependencies(w, i);
    }
    if (w->out->reason)
        return LH_OK;
    /* Each chunk runs each microbatch; otherwise passes are missing. */
    if (b.n > ops->n) {
        w->out->reason = "passes are missing";
        return LH_OK;
    }
    b.rows[0] = LHI_NEW(w->arena, uint32_t, b.n);
    b.rows[1] = LHI_NEW(w->arena, uint32_t, b.n);
    if (!room || !b.rows[0] || !b.rows[1])
        return lhi_fail_nomem(err);
    for (uint32_t r = 0; r < ops->n_replicas && !w->out->reason; r++) {
        index_replica(w, r, &b);
        for (size_t i = 0; i < b.n && !w->out->reason; i++)
            if (b.rows[0][i] == LH_NONE || b.rows[1][i] == LH_NONE)
                w->out->reason = "passes are missing";
        for (uint32_t i = w->first_pass[r * ops->n_stages];
             i < w->first_pass[(r + 1) * ops->n_stages] && !w->out->reason; i++)
            add_input_dependency(w, w->passes[i], &b);
    }
    return LH_OK;
}
