/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a synthetic recording for longhaul diagnose to standard output: a job
 * under 1F1B whose pass durations vary between ranks and steps, with one slow
 * worker.
 *
 *     make_recording STAGES REPLICAS MICROBATCHES STEPS */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { F_US = 10000, B_US = 20000, MESSAGE_US = 500, GATHER_US = 3000 };

/* Job size. */
typedef struct shape {
    uint32_t stages, replicas, microbatches, steps;
} shape;

/* One rank's output state. */
typedef struct rank {
    uint32_t step, replica, stage, number;
    uint32_t seq[6]; /* per kind of row */
    bool quiet;      /* compute times only, print nothing */
} rank;

/* One replica's pass end times, in microseconds: stage * microbatches + mb. */
typedef struct replica {
    int64_t *forward, *backward;
    int64_t *free_at; /* per stage */
    uint32_t *done;   /* passes per stage */
} replica;

static const char *const kinds[] = {"forward-compute", "backward-compute",
                                    "forward-send",    "forward-recv",
                                    "backward-send",   "backward-recv"};

static void write_row(const rank *r, const char *op, uint32_t seq, int here,
                      int chunk, int mb, int64_t from, int64_t to)
{
    if (r->quiet)
        return;
    printf("%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%s,%" PRIu32
           ",%d,%d,%d,%" PRId64 ".%06d,%" PRId64 ".%06d\n",
           r->step, r->number, r->replica, r->stage, op, seq, here, chunk, mb,
           from / 1000000, (int)(from % 1000000), (to - from) / 1000000,
           (int)((to - from) % 1000000));
}

static void write_message(rank *r, uint32_t kind, int64_t from, int64_t to)
{
    write_row(r, kinds[kind], r->seq[kind]++, -1, -1, -1, from, to);
}

/* Returns a duration that varies between passes, reproducibly. */
static int64_t varied(int64_t us, const rank *r, uint32_t mb)
{
    uint64_t x = ((uint64_t)r->step << 40) ^ ((uint64_t)r->number << 20) ^ mb;
    x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    bool slow = r->replica == 0 && r->stage == 1;
    return (us + (int64_t)(x >> 40) % (us / 20)) * (slow ? 3 : 2) / 2;
}

/* Returns microbatch and direction for a stage's i-th pass under 1F1B. */
static bool pass_is_backward(const shape *s, uint32_t stage, uint32_t i,
                             uint32_t *mb)
{
    uint32_t warm = s->stages - stage - 1, M = s->microbatches;
    warm = warm < M ? warm : M;
    if (i < warm) {
        *mb = i;
        return false;
    }
    uint32_t rest = i - warm, pairs = M - warm;
    bool backward = rest >= 2 * pairs || rest % 2 == 1;
    *mb = rest >= 2 * pairs ? pairs + rest - 2 * pairs
          : backward        ? rest / 2
                            : warm + rest / 2;
    return backward;
}

/* Runs a stage's next pass if its input is available. */
static bool next_pass(const shape *s, replica *p, rank *r)
{
    uint32_t mb, M = s->microbatches, stage = r->stage;
    if (p->done[stage] == 2 * M)
        return false;
    bool back = pass_is_backward(s, stage, p->done[stage], &mb);
    bool needs = back ? stage + 1 < s->stages : stage > 0;
    uint32_t other = back ? stage + 1 : stage - 1;
    int64_t *ends = back ? p->backward : p->forward;
    int64_t begin = p->free_at[stage], made = 0;
    if (needs) {
        made = ends[other * M + mb];
        if (made < 0)
            return false;
        int64_t there = (made > begin ? made : begin) + MESSAGE_US;
        write_message(r, back ? 5 : 3, begin, there);
        begin = there;
    }
    int64_t end = begin + varied(back ? B_US : F_US, r, mb);
    write_row(r, kinds[back], r->seq[back]++, 0, (int)stage, (int)mb, begin,
              end);
    if (back ? stage > 0 : stage + 1 < s->stages)
        write_message(r, back ? 4 : 2, end, end + MESSAGE_US);
    ends[stage * M + mb] = end;
    p->free_at[stage] = end;
    p->done[stage]++;
    return true;
}

static void run_passes(const shape *s, replica *p, uint32_t step,
                       uint32_t number, bool quiet, rank *ranks)
{
    for (uint32_t i = 0; i < s->stages * s->microbatches; i++)
        p->forward[i] = p->backward[i] = -1;
    for (uint32_t k = 0; k < s->stages; k++) {
        ranks[k] = (rank){.step = step,
                          .replica = number,
                          .stage = k,
                          .number = number * s->stages + k,
                          .quiet = quiet};
        p->done[k] = 0;
        p->free_at[k] = GATHER_US;
        write_row(&ranks[k], "params-all-gather", 0, 0, -1, -1, 0, GATHER_US);
    }
    for (bool more = true; more;) {
        more = false;
        for (uint32_t k = 0; k < s->stages; k++)
            while (next_pass(s, p, &ranks[k]))
                more = true;
    }
}

/* Writes the gradient reduction and the optimizer after the passes; `together`
 * is the time when all replicas of a stage are ready. */
static void write_end(const shape *s, const replica *p, const rank *ranks,
                      const int64_t *together)
{
    for (uint32_t k = 0; k < s->stages; k++) {
        int64_t end = together[k] + GATHER_US;
        write_row(&ranks[k], "grads-reduce-scatter", 0, 0, -1, -1,
                  p->free_at[k], end);
        write_row(&ranks[k], "optimizer", 0, -1, -1, -1, end, end + GATHER_US);
    }
}

static void write_step(const shape *s, replica *p, uint32_t step, rank *ranks,
                       int64_t *together)
{
    for (uint32_t k = 0; k < s->stages; k++)
        together[k] = 0;
    for (uint32_t i = 0; i < s->replicas; i++) {
        run_passes(s, p, step, i, true, ranks);
        for (uint32_t k = 0; k < s->stages; k++)
            if (p->free_at[k] > together[k])
                together[k] = p->free_at[k];
    }
    for (uint32_t i = 0; i < s->replicas; i++) {
        run_passes(s, p, step, i, false, ranks);
        write_end(s, p, ranks, together);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "make_recording STAGES REPLICAS MICROBATCHES STEPS\n");
        return 2;
    }
    shape s = {(uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2]),
               (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4])};
    size_t n = (size_t)s.stages * s.microbatches;
    replica p = {calloc(n + 1, sizeof *p.forward),
                 calloc(n + 1, sizeof *p.backward),
                 calloc(s.stages + 1u, sizeof *p.free_at),
                 calloc(s.stages + 1u, sizeof *p.done)};
    rank *ranks = calloc(s.stages + 1u, sizeof *ranks);
    int64_t *together = calloc(s.stages + 1u, sizeof *together);
    if (!together || !p.forward || !p.backward || !p.free_at || !p.done ||
        !ranks)
        return 1;
    printf("step,rank,dp_rank,stage,optype,seq_id,mc,gmc,mb_id,start_ts,"
           "duration\n");
    for (uint32_t step = 0; step < s.steps; step++)
        write_step(&s, &p, step, ranks, together);
    free(p.forward);
    free(p.backward);
    free(p.free_at);
    free(p.done);
    free(ranks);
    free(together);
    return fflush(stdout) ? 1 : 0;
}
