/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog of a rank's passes, in virtual time. */
#include "base/fail.h"
#include "base/realtime.h"
#include "runtime/engine/watchdog.h"
#include "test.h"
#include "virtual_time.h"

static const int64_t ms_ns = 1000000;

/* Behaviour of rank 1 after a first iteration whose passes take
 * iteration_ns. */
typedef struct behaviour {
    int64_t first_ns;              /* a pass before all; 0: none */
    int64_t iteration_ns, pass_ns; /* 0: no iteration before the pass */
    int64_t paused_ns;    /* part of the pass in which it waits for rank 0 */
    int64_t suspended_ns; /* then the process is stopped */
    int64_t ended_ns;     /* out: the run's failure was set, since the pass
                           * began; 0: never */
} behaviour;

static const lh_pass f3 = {
    .kind = LH_F, .chunk = 2, .microbatch = 3, .n_parts = 1};

/* Runs a pass with waits of 1 ms, so that its end is exact to 1 ms; it ends
 * early if the run fails. */
static void run_pass(lhi_net *net, behaviour *b)
{
    const int64_t begin_ns = lhi_now_ns();
    lhi_net_begin_work(net, lhi_watchdog_pack_pass(&f3), begin_ns);
    if (b->paused_ns) {
        lhi_sleep_for(ms_ns);
        const bool was_working = lhi_net_pause_work(net);
        lhi_sleep_for(b->paused_ns);
        lhi_net_resume_work(net, was_working);
    }
    if (b->suspended_ns)
        virtual_time_suspend(b->suspended_ns);
    while (!lhi_net_failure(net) && lhi_now_ns() - begin_ns < b->pass_ns)
        lhi_sleep_for(ms_ns);
    if (lhi_net_failure(net))
        b->ended_ns = lhi_now_ns() - begin_ns;
    lhi_net_end_work(net, lhi_now_ns());
}

static lh_status rank_main(lhi_net *net, void *context, char **result,
                           size_t *size, lh_error *err)
{
    behaviour *b = context;
    lhi_watchdog *dog = NULL;
    lhi_net_op op = {0};
    char byte = 0;
    (void)result, (void)size;
    if (lhi_net_rank(net) == 0) { /* waits in no pass */
        LHI_TRY(lhi_net_receive(net, 1, 7, &byte, 1, &op, err));
        return lhi_net_wait(net, &op, 0, err);
    }
    const lhi_watchdog_options o = {
        .net = net, .silence_ns = 800 * ms_ns, .n_passes = 10};
    LHI_TRY(lhi_watchdog_start(&o, &dog, err));
    if (b->iteration_ns) {
        lhi_watchdog_add_iteration(dog, b->iteration_ns);
        lhi_watchdog_add_iteration(dog, 1); /* the longest one counts */
    }
    if (b->first_ns)
        run_pass(net, &(behaviour){.pass_ns = b->first_ns});
    run_pass(net, b);
    lhi_watchdog_stop(dog);
    LHI_TRY(lhi_net_send(net, 0, 7, &byte, 1, LHI_NET_NO_LINK, 0, 0, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

/* Runs two ranks; returns when the run failed, since the pass began. */
static int64_t run(behaviour b, lh_error *err)
{
    lhi_rank_result results[2] = {{NULL, 0}, {NULL, 0}};
    b.ended_ns = 0;
    const lh_status status =
        lhi_inproc_run(2, 0, NULL, rank_main, &b, results, err);
    CHECK((status != LH_OK) == (b.ended_ns > 0));
    return b.ended_ns;
}

/* Limit 800 ms + 10 * 50 ms = 1300 ms, checked every 100 ms: the check at which
 * the pass is first seen, and the one after the limit, add 200 ms. In the first
 * iteration, ten passes of 5 ms are 50 ms. */
static void a_pass_that_hangs_loses_its_rank(void)
{
    const behaviour hung[] = {
        {.iteration_ns = 50 * ms_ns, .pass_ns = 60000 * ms_ns},
        {.first_ns = 5 * ms_ns, .pass_ns = 60000 * ms_ns}};
    for (int i = 0; i < 2; i++) {
        lh_error err = {0};
        const int64_t ended_ns = run(hung[i], &err);
        CHECK_MSG(ended_ns > 1300 * ms_ns && ended_ns <= 1501 * ms_ns,
                  "%d: %lld ns", i, (long long)ended_ns);
        CHECK_HAS(err.text,
                  "rank 1: hangs: its pass 2F3 lasts more than 1.3 s, which is "
                  "0.8 s (--silence) and 10 times the passes of an iteration "
                  "(0.05 s)");
    }
}

static void slow_passes_and_waits_are_no_hang(void)
{
    lh_error err = {0};
    const behaviour calm[] = {
        {.iteration_ns = 50 * ms_ns, .pass_ns = 1300 * ms_ns},
        /* no pass with which to compare */
        {.pass_ns = 60000 * ms_ns},
        /* nor is a part of the first pass one, before a wait */
        {.paused_ns = ms_ns, .pass_ns = 60000 * ms_ns},
        /* waits for rank 0 for a minute, then computes for 1 s */
        {.iteration_ns = 50 * ms_ns,
         .paused_ns = 60000 * ms_ns,
         .pass_ns = 61000 * ms_ns},
        /* the process is stopped for a minute */
        {.iteration_ns = 50 * ms_ns,
         .suspended_ns = 60000 * ms_ns,
         .pass_ns = 61000 * ms_ns},
    };
    for (size_t i = 0; i < sizeof calm / sizeof *calm; i++)
        CHECK_MSG(run(calm[i], &err) == 0, "%zu: %s", i, err.text);
}

int main(void)
{
    RUN_VIRTUAL(a_pass_that_hangs_loses_its_rank);
    RUN_VIRTUAL(slow_passes_and_waits_are_no_hang);
    return test_summary();
}
