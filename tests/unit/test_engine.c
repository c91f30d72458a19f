/* SPDX-License-Identifier: Apache-2.0 */
/* Execution plans: lowering of schedules, and no deadlock in any plan that
 * passes the proof. */
#include "random_pipeline.h"
#include "runtime/engine/execution_plan.h"
#include "runtime/engine/measure.h"
#include "schedule/pipeline/accessors.h"
#include "scheduled.h"
#include "test.h"

#include <longhaul/experimental/methods.h>
#include <stdlib.h>

static const char two[] =
    "longhaul: pipeline/1\ntime_unit: ms\nmicrobatches: 4\ndevices: 2\n"
    "uniform: {placement: ud, F: 10, D: 10, W: 10, memory: {F: 1, W: -1}}\n"
    "datacenters: {count: 2, latency: 5, transfer: 2}\n";

static lh_exec *lower(const lh_pipeline *p, const lh_schedule *s,
                      lh_receives receives, uint32_t slots)
{
    lh_error err;
    lh_exec *x = NULL;
    lh_exec_options o = {
        .size = sizeof o, .receives = receives, .receive_slots = slots};
    CHECK_OK(lh_exec_make(p, s, &o, &x, &err), err);
    return x;
}

/* Lists a rank's instructions as "stream pass after", one per line. */
static void list(const lh_exec *x, uint32_t rank, char *out, size_t room)
{
    uint32_t n;
    const lh_instruction *in = lh_exec_instructions(x, rank, &n);
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && at < room; i++) {
        char pass[LH_PASS_TEXT_SIZE];
        at += (size_t)snprintf(out + at, room - at, "%s%s %s %" PRIu32,
                               i ? "\n" : "", lh_stream_name(in[i].stream),
                               lh_pass_format(&in[i].pass, pass),
                               in[i].passes_before);
    }
}

static void streams_of_two_ranks(void)
{
    lh_pipeline *p = pipeline_of(two);
    lh_schedule *s = schedule_by(p, "1f1b");
    char text[4096];
    lh_exec *x = lower(p, s, LH_RECEIVES_LATE, 0);
    list(x, 1, text, sizeof text);
    CHECK_STR(text, "receive-prev 1F0 0\n"
                    "compute 1F0 0\n"
                    "compute 1B0 1\n"
                    "send-prev 1B0 2\n"
                    "receive-prev 1F1 2\n"
                    "compute 1F1 2\n"
                    "compute 1B1 3\n"
                    "send-prev 1B1 4\n"
                    "receive-prev 1F2 4\n"
                    "compute 1F2 4\n"
                    "compute 1B2 5\n"
                    "send-prev 1B2 6\n"
                    "receive-prev 1F3 6\n"
                    "compute 1F3 6\n"
                    "compute 1B3 7\n"
                    "send-prev 1B3 8");
    CHECK_INT(lh_exec_receive_slots(x, 1), 1);
    lh_exec_free(x);
    x = lower(p, s, LH_RECEIVES_EARLY, 0);
    CHECK_INT(lh_exec_receive_slots(x, 1), 2);
    CHECK_INT(lh_exec_n_ranks(x), 2);
    CHECK(lh_exec_predicted_ns(x) > 0);
    list(x, 1, text, sizeof text);
    CHECK_HAS(text, "receive-prev 1F0 0\nreceive-prev 1F1 0\ncompute 1F0 0");
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

static void late_fd_passes_over_w(void)
{
    lh_pipeline *p = pipeline_of(two);
    lh_schedule *s = schedule_by(p, "zb-h1");
    lh_exec *x = lower(p, s, LH_RECEIVES_LATE_FD, 0);
    uint32_t n, seen = 0;
    const lh_instruction *in = lh_exec_instructions(x, 1, &n);
    const lh_pass *last = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (in[i].stream == LH_STREAM_COMPUTE)
            last = &in[i].pass;
        if (in[i].stream == LH_STREAM_RECEIVE_PREV) {
            CHECK(!last || last->kind != LH_W);
            seen++;
        }
    }
    CHECK_INT(seen, 4);
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* --- data-parallel communication ------------------------------------------ */

/* Finds the position of a point's backward or forward in the rank's order. */
static uint32_t place_of(const lhi_exec_rank *rank, const lh_dp_pass *at)
{
    for (uint32_t i = 0; i < rank->n_passes; i++) {
        const lh_pass *pass = &rank->passes[i].pass;
        if (pass->chunk == at->chunk && pass->microbatch == at->microbatch &&
            pass->kind != LH_W && (pass->kind != LH_F) == at->backward)
            return i;
    }
    return LH_NONE;
}

/* Checks that each operation is in its device's stream once, with the
 * pipeline's passes; the stream is in launch order. */
static void check_data(const lh_pipeline *p, const lh_exec *x)
{
    uint32_t n_ops = 0;
    for (uint32_t d = 0; d < x->n_ranks; d++) {
        const lhi_exec_rank *rank = &x->ranks[d];
        uint32_t n, after = 0, listed = 0;
        const lh_instruction *in = lh_exec_instructions(x, d, &n);
        for (uint32_t i = 0; i < n; i++) {
            if (in[i].stream != LH_STREAM_DATA)
                continue;
            CHECK(in[i].passes_before >= after);
            after = in[i].passes_before;
            listed++;
            if (in[i].op == LH_NONE)
                continue;
            const lh_dp_op *op = lh_pipeline_dp_op(p, in[i].op);
            n_ops++;
            CHECK_INT(op->chunk, in[i].pass.chunk);
            CHECK_INT(op->is_reduce_scatter, in[i].pass.kind == LH_W);
            CHECK_INT(lh_pipeline_chunk(p, op->chunk)->device, d);
            CHECK_INT(in[i].passes_before, place_of(rank, &op->launch));
            CHECK_INT(in[i].needed_by_pass,
                      op->needed_by.chunk == LH_NONE
                          ? LH_NONE
                          : place_of(rank, &op->needed_by));
        }
        CHECK_INT(listed, rank->n_data);
    }
    CHECK_INT(n_ops, lhi_pipeline_n_dp_ops(p));
}

static void data_stream_of_an_elastic_pipeline(void)
{
    static const char text[] =
        "longhaul: pipeline/1\nmicrobatches: 4\ndevices: 2\nbackward: joint\n"
        "uniform: {placement: loop, chunks_per_device: 2, F: 6, D: 6, W: 6}\n"
        "data_parallel: {elastic: {enqueue: [2, 2], dequeue: [2, 2], "
        "transfer: 2, gradients: 1, parameters: 0.5, "
        "buckets: {scatter: 2, forward: 1, backward: 1}}}\n";
    static const char *const wanted[] = {
        "- 0 0:F before 0", "AGO 0 2:F before 2", "AGF 3 0:F before 4",
        "AGF 6 2:F before 8"};
    lh_pipeline *p = pipeline_of(text);
    lh_schedule *s = schedule_by(p, "elastic");
    lh_error err = {0};
    lh_exec *x = lower(p, s, LH_RECEIVES_EARLY, 0);
    uint32_t n, at = 0, gathers = 0, scatters = 0;
    const lh_instruction *in = lh_exec_instructions(x, 0, &n);
    check_data(p, x);
    for (uint32_t i = 0; i < n; i++) {
        char line[80];
        if (in[i].stream != LH_STREAM_DATA)
            continue;
        lh_dp_kind kind = in[i].op == LH_NONE
                              ? LH_DP_ANY
                              : lh_pipeline_dp_op(p, in[i].op)->kind;
        gathers += in[i].pass.kind == LH_F;
        scatters += in[i].pass.kind == LH_W;
        snprintf(line, sizeof line, "%s %u %u:%c before %u",
                 kind ? lh_dp_kind_name(kind) : "-", in[i].passes_before,
                 in[i].pass.chunk, in[i].pass.kind == LH_F ? 'F' : 'W',
                 in[i].needed_by_pass);
        if (at < 4 && in[i].pass.kind == LH_F && kind != LH_DP_AGB)
            CHECK_STR(line, wanted[at++]);
    }
    /* First and AGO; two AGF, three AGB; RSG of three blocks without the last
     * group's, two of them in halves; RSO and last. */
    CHECK_INT(at, 4);
    CHECK_INT(gathers, 2 + 2 + 3);
    CHECK_INT(scatters, 2 * 2 + 1 + 1);
    CHECK_OK(lhi_exec_check_deadlock(x, &err), err);
    for (uint32_t i = 0; i < x->ranks[1].n_passes; i++)
        if (x->ranks[1].passes[i].n_required_data > 1) {
            x->ranks[1].passes[i].first_data =
                x->ranks[1].passes[i].n_required_data - 1;
            break;
        }
    CHECK_INT(lhi_exec_check_deadlock(x, &err), LH_EDEADLOCK);
    CHECK_HAS(err.text, "deadlock: rank 1 waits at 3F0 for a communication of "
                        "chunk 3 that it launches itself only with 1F0");
    lh_exec_free(x);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

/* --- each receive is posted once, in time, into a free buffer ------------- */

static void check_slots(const lhi_exec_rank *rank)
{
    uint32_t *user = calloc(rank->n_slots + 1u, sizeof *user);
    bool *posted = calloc(rank->n_passes + 1u, sizeof *posted);
    CHECK(user && posted);
    for (uint32_t i = 0; user && posted && i < rank->n_passes; i++) {
        const lhi_exec_pass *pass = &rank->passes[i];
        for (uint32_t k = pass->first_post; k < pass[1].first_post; k++) {
            const lhi_exec_post *post = &rank->posts[k];
            CHECK(post->consumer >= i && post->slot < rank->n_slots);
            CHECK_MSG(user[post->slot] == 0, "a buffer in use is posted");
            CHECK(!posted[post->consumer]);
            user[post->slot] = post->consumer + 1;
            posted[post->consumer] = true;
        }
        if (pass->input == LH_NONE || pass->local_input)
            continue;
        CHECK_MSG(posted[i], "a pass without a receive");
        CHECK_INT(user[pass->slot], i + 1);
        user[pass->slot] = 0;
    }
    free(user);
    free(posted);
}

/* --- token executor: runs enabled actions in a random order --------------- */

/* State of the token executor. */
typedef struct tokens {
    const lh_exec *x;
    uint32_t *done;
    bool *made, *posted, *moved;
    uint64_t *turn_now; /* per link */
    uint64_t *turns;    /* per message */
    uint32_t *links;
} tokens;

static bool step_rank(tokens *t, uint32_t r)
{
    const lhi_exec_rank *rank = &t->x->ranks[r];
    if (t->done[r] == rank->n_passes)
        return false;
    const lhi_exec_pass *pass = &rank->passes[t->done[r]];
    for (uint32_t k = pass->first_post; k < pass[1].first_post; k++)
        t->posted[rank->posts[k].input] = true;
    if (pass->n_required_data > pass->first_data)
        return false;
    if (pass->input != LH_NONE && !pass->local_input && !t->moved[pass->input])
        return false;
    t->done[r]++;
    if (pass->output != LH_NONE && !pass->local_output) {
        t->made[pass->output] = true;
        t->turns[pass->output] = pass->turn;
        t->links[pass->output] = pass->link;
    }
    return true;
}

static bool step_message(tokens *t, uint32_t m)
{
    if (!t->made[m] || !t->posted[m] || t->moved[m])
        return false;
    if (t->turns[m] != UINT64_MAX) {
        if (t->turn_now[t->links[m]] != t->turns[m])
            return false;
        t->turn_now[t->links[m]]++;
    }
    return t->moved[m] = true;
}

static bool all_done(const tokens *t)
{
    for (uint32_t r = 0; r < t->x->n_ranks; r++)
        if (t->done[r] < t->x->ranks[r].n_passes)
            return false;
    return true;
}

static bool run_tokens(rng *seed, const lh_exec *x)
{
    uint32_t n = 2 * x->n_half, total = n + x->n_ranks, idle = 0;
    tokens t = {x,
                calloc(x->n_ranks, sizeof(uint32_t)),
                calloc(n, 1),
                calloc(n, 1),
                calloc(n, 1),
                calloc(x->n_links + 1u, sizeof(uint64_t)),
                calloc(n, sizeof(uint64_t)),
                calloc(n, sizeof(uint32_t))};
    uint32_t at = rng_below(seed, total);
    while (idle < 2 * total) { /* posting is not progress */
        bool moved = at < n ? step_message(&t, at) : step_rank(&t, at - n);
        idle = moved ? 0 : idle + 1;
        at = moved ? rng_below(seed, total) : (at + 1) % total;
    }
    bool ok = all_done(&t);
    free(t.done);
    free(t.made);
    free(t.posted);
    free(t.moved);
    free(t.turn_now);
    free(t.turns);
    free(t.links);
    return ok;
}

/* Bounded buffers and explicit message orders deadlock some plans; the proof
 * and the token executor agree on them. */
static void proof_against_tokens(void)
{
    rng r = {4};
    int fine = 0, stuck = 0;
    for (int i = 0; i < 1500 && !test_state.bad; i++) {
        random_shape shape = {.no_data_parallel = rng_chance(&r, 50)};
        lh_pipeline *p = random_pipeline(&r, &shape);
        lh_schedule *s = random_schedule(&r, p, true, rng_chance(&r, 70));
        lh_exec_options o = {.size = sizeof o,
                             .receives = (lh_receives)rng_below(&r, 3)};
        lh_exec *x = NULL;
        lh_error err;
        lh_status status = lh_exec_make(p, s, &o, &x, &err);
        /* The simulator uses the same orders: if it completes, so does the
         * plan. */
        if (o.receives == LH_RECEIVES_EARLY)
            CHECK_OK(status, err);
        CHECK(status == LH_OK || status == LH_EDEADLOCK);
        if (x) {
            for (uint32_t d = 0; d < x->n_ranks; d++)
                check_slots(&x->ranks[d]);
            check_data(p, x);
            CHECK(run_tokens(&r, x));
            lh_exec_free(x);
        }
        /* With fewer buffers, proven or not: lower without the proof, then run
         * both. */
        x = NULL;
        o.receives = LH_RECEIVES_EARLY;
        o.receive_slots = 1 + rng_below(&r, 2);
        if (lhi_exec_lower(p, s, &o, &x, &err) == LH_OK) {
            status = lhi_exec_check_deadlock(x, &err);
            bool can = run_tokens(&r, x);
            CHECK_INT(status == LH_OK, can);
            if (status != LH_OK)
                CHECK_HAS(err.text, "deadlock: ");
            fine += can;
            stuck += !can;
            lh_exec_free(x);
        }
        if (test_state.bad)
            print_case(p, s);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    CHECK_MSG(fine > 200 && stuck > 5, "%d plans run, %d are stuck", fine,
              stuck);
}

/* alpha 20 us, 0.5 ns per byte, symmetric noise. */
static void line_through_sizes(void)
{
    double bytes[6], ns[6], alpha, beta;
    for (int i = 0; i < 6; i++) {
        bytes[i] = 64 << (2 * i);
        ns[i] = (20000 + 0.5 * bytes[i]) * (i % 2 ? 1.001 : 0.999);
    }
    lhi_fit_link(bytes, ns, 6, &alpha, &beta);
    CHECK_NEAR(alpha, 20000, 60);
    CHECK_NEAR(beta, 0.5, 0.003);
    for (int i = 0; i < 6; i++)
        ns[i] = 1000; /* no slope; never negative */
    lhi_fit_link(bytes, ns, 6, &alpha, &beta);
    CHECK_NEAR(alpha, 1000, 1e-6);
    CHECK_NEAR(beta, 0, 1e-12);
}

static void refusals(void)
{
    lh_pipeline *p = pipeline_of(two);
    lh_schedule *s = schedule_by(p, "1f1b");
    lh_exec_options o = {.size = 1};
    lh_exec *x = NULL;
    lh_error err;
    CHECK_INT(lh_exec_make(p, s, &o, &x, &err), LH_EINVAL);
    CHECK_HAS(err.text, "lh_exec_options.size");
    lh_exec_free(NULL);
    lh_schedule_free(s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(streams_of_two_ranks);
    RUN(late_fd_passes_over_w);
    RUN(data_stream_of_an_elastic_pipeline);
    RUN(proof_against_tokens);
    RUN(line_through_sizes);
    RUN(refusals);
    return test_summary();
}
