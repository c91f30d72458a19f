/* SPDX-License-Identifier: Apache-2.0 */
/* Runs all policies with all seeds on all processors. */
#include "network/optical/scenario.h"

#include "base/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The result with its memory. */
typedef struct result {
    lhi_arena *mem;
    lh_optical optical;
    lh_optical_policy *policies;
} result;

/* A scenario with its results. */
typedef struct cell {
    const lh_scenario *s;
    result *result;
    uint32_t first; /* run */
} cell;

/* State shared by the threads. */
typedef struct shared_work {
    cell *cells;
    uint32_t n_cells;
    const lh_optical_options *options;
    uint32_t total;
    atomic_uint next;
    atomic_bool stop;
    pthread_mutex_t lock;  /* protects the fields below */
    uint32_t done, failed; /* failed: first failed run's index */
    lh_status status;
    lh_error err;
} shared_work;

/* Returns the work item that contains run number `i`: one scenario and policy,
 * with consecutive runs, one per seed. */
static const cell *find_cell(const shared_work *w, uint32_t i)
{
    uint32_t low = 0, high = w->n_cells;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (w->cells[middle].first <= i)
            low = middle;
        else
            high = middle;
    }
    return &w->cells[low];
}

/* Computes one job's statistics in a run from its simulation's output,
 * into *job: mean iteration time, bubble ratio, blocking probability and
 * occupied slots. */
static void summarise_job(lh_optical_job *job, const lhi_policy *policy,
                          const lhi_program *program,
                          const lhi_optical_job_output *out)
{
    double total = 0, bubble = 0, requested = 0, refused = 0;
    uint32_t n = job->n_iterations - 1;
    double busy = (double)program->busy_ns / program->n_devices;
    job->blocked = out->refused[0];
    for (uint32_t i = 1; i <= n; i++) {
        double ns = (double)out->iteration_ns[i];
        total += ns;
        bubble += ns > 0 ? 1 - busy / ns : 0;
        requested += out->requested[i];
        refused += out->refused[i];
        job->blocked += out->refused[i];
    }
    /* Policies that reorder passes at run time have another bound. */
    job->bound_ns = program->after_ns + (policy->fill_idle ? program->busiest_ns
                                                           : program->bound_ns);
    job->iteration_s = total / n / 1e9;
    job->bubble_ratio = bubble / n;
    job->blocking_probability = requested > 0 ? refused / requested : 0;
    job->slots_held = total > 0 ? out->held_ns / total : 0;
}

/* Simulates a run with outages once more without them, into intact_ns, and
 * computes each job's loss of time by the outages. */
static lh_status simulate_intact(const lhi_optical_run_input *input,
                                 const lh_optical_run *run, lhi_arena *mem,
                                 lh_error *err)
{
    lhi_optical_run_input in = *input;
    lhi_optical_job_output *outs =
        LHI_NEW(mem, lhi_optical_job_output, in.n_jobs);
    uint32_t n = in.iterations + 1;
    for (uint32_t j = 0; outs && j < in.n_jobs; j++) {
        outs[j] = (lhi_optical_job_output){
            .iteration_ns = (int64_t *)run->jobs[j].intact_ns,
            .labels = LHI_NEW(mem, uint32_t, n),
            .requested = LHI_NEW(mem, uint32_t, n),
            .refused = LHI_NEW(mem, uint32_t, n)};
        if (!outs[j].labels || !outs[j].requested || !outs[j].refused)
            return lhi_fail_nomem(err);
    }
    if (!outs)
        return lhi_fail_nomem(err);
    in.failures = NULL;
    lhi_optical_run_output out = {.jobs = outs};
    LHI_TRY(lhi_optical_simulate(&in, &out, err));
    for (uint32_t j = 0; j < in.n_jobs; j++) {
        lh_optical_job *job = (lh_optical_job *)&run->jobs[j];
        double intact = 0;
        for (uint32_t i = 1; i < n; i++)
            intact += (double)job->intact_ns[i];
        job->lost_s = job->iteration_s - intact / in.iterations / 1e9;
    }
    return LH_OK;
}

/* Stores a simulation's counts of circuits in *run, computes each job's
 * statistics, and copies its outages to memory of the result (result_mem,
 * guarded by `lock`). */
static lh_status store_output(const lhi_optical_run_job *jobs,
                              const lhi_optical_run_output *out,
                              lhi_arena *result_mem, pthread_mutex_t *lock,
                              lh_optical_run *run, lh_error *err)
{
    run->background = out->background;
    run->background_refused = out->background_refused;
    run->background_cut = out->background_cut;
    run->background_lost = out->background_lost;
    for (uint32_t j = 0; j < run->n_jobs; j++) {
        lh_optical_job *job = (lh_optical_job *)&run->jobs[j];
        summarise_job(job, jobs[j].policy, jobs[j].program, &out->jobs[j]);
        job->cut_messages = out->jobs[j].cut_messages;
        job->preempted_messages = out->jobs[j].preempted_messages;
        job->warm_up_preempted_messages =
            out->jobs[j].warm_up_preempted_messages;
    }
    if (out->n_outages == 0)
        return LH_OK;
    /* The threads share the result's arena. */
    pthread_mutex_lock(lock);
    lh_outage *outages = LHI_NEW(result_mem, lh_outage, out->n_outages);
    pthread_mutex_unlock(lock);
    if (!outages)
        return lhi_fail_nomem(err);
    memcpy(outages, out->outages, out->n_outages * sizeof *outages);
    run->outages = outages;
    run->n_outages = out->n_outages;
    return LH_OK;
}

/* Simulates run `i` and stores its results; runs of different numbers may run
 * in parallel. */
static lh_status simulate_run(shared_work *w, uint32_t i, lh_error *err)
{
    const cell *c = find_cell(w, i);
    const lh_scenario *s = c->s;
    uint32_t n_runs = c->result->policies[0].n_runs;
    uint32_t which = (i - c->first) / n_runs;
    const lhi_policy *policy = &s->policies[which];
    lh_optical_run *run = (lh_optical_run *)&c->result->policies[which]
                              .runs[(i - c->first) % n_runs];
    lhi_arena *mem = lhi_arena_make(0);
    lhi_optical_run_job *jobs =
        mem ? LHI_NEW(mem, lhi_optical_run_job, s->n_jobs) : NULL;
    lhi_optical_job_output *outs =
        mem ? LHI_NEW(mem, lhi_optical_job_output, s->n_jobs) : NULL;
    lh_status status =
        jobs && outs
            ? lhi_scenario_prepare_jobs(s, policy, run->seed, mem, jobs, err)
            : lhi_fail_nomem(err);
    lhi_optical_run_output out = {.jobs = outs};
    for (uint32_t j = 0; status == LH_OK && j < s->n_jobs; j++) {
        const lh_optical_job *job = &run->jobs[j];
        memcpy((uint32_t *)job->sites, jobs[j].sites,
               job->n_devices * sizeof *job->sites);
        outs[j] = (lhi_optical_job_output){
            .iteration_ns = (int64_t *)job->iteration_ns,
            .labels = (uint32_t *)job->labels,
            .requested = (uint32_t *)job->requested,
            .refused = (uint32_t *)job->refused};
    }
    if (status == LH_OK) {
        lhi_optical_run_input in = lhi_scenario_run_input(s, jobs, run->seed);
        status = lhi_optical_simulate(&in, &out, err);
        if (status == LH_OK)
            status =
                store_output(jobs, &out, c->result->mem, &w->lock, run, err);
        if (status == LH_OK && s->failures)
            status = simulate_intact(&in, run, mem, err);
    }
    free(out.outages);
    lhi_arena_free(mem);
    return status;
}

/* Simulates the next run on a worker thread, until none is left, a run fails
 * or the caller cancels. */
static void *run_worker(void *context)
{
    shared_work *w = context;
    for (;;) {
        uint32_t i = atomic_fetch_add(&w->next, 1);
        if (i >= w->total || atomic_load(&w->stop))
            return NULL;
        lh_error err = {0};
        lh_status status = simulate_run(w, i, &err);
        pthread_mutex_lock(&w->lock);
        w->done++;
        /* Runs start in order, so the first one that fails always runs. */
        if (status != LH_OK && (w->status == LH_OK || i < w->failed)) {
            w->status = status;
            w->failed = i;
            w->err = err;
        }
        if (status == LH_OK && w->status == LH_OK && w->options->progress &&
            w->options->progress(w->options->context, w->done, w->total)) {
            w->failed = w->total;
            w->status = lhi_fail(&w->err, LH_ECANCELED, "stopped");
        }
        if (w->status != LH_OK)
            atomic_store(&w->stop, true);
        pthread_mutex_unlock(&w->lock);
    }
}

/* Simulates all runs on the requested thread count, the calling one included;
 * returns the first failed run's error. */
static lh_status run_threads(shared_work *w, lh_error *err)
{
    enum { MOST = 256 };
    pthread_t threads[MOST];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = w->options->threads, started = 0;
    if (n == 0)
        n = processors > 0 && processors < MOST ? (uint32_t)processors : 1;
    if (n > w->total)
        n = w->total;
    if (n > MOST)
        n = MOST;
    if (pthread_mutex_init(&w->lock, NULL) != 0)
        return lhi_fail_nomem(err);
    /* The calling thread works too; it runs everything if no thread starts. */
    while (started + 1 < n &&
           pthread_create(&threads[started], NULL, run_worker, w) == 0)
        started++;
    run_worker(w);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&w->lock);
    if (w->status != LH_OK && err)
        *err = w->err;
    return w->status;
}

/* --- result --------------------------------------------------------------- */

/* Allocates the result arrays of a run's jobs; NULL on allocation failure. */
static lh_optical_job *make_jobs(const lh_scenario *s, lhi_arena *mem)
{
    lh_optical_job *jobs = LHI_NEW(mem, lh_optical_job, s->n_jobs);
    uint32_t n = s->iterations + 1;
    for (uint32_t j = 0; jobs && j < s->n_jobs; j++) {
        lh_optical_job *job = &jobs[j];
        *job = (lh_optical_job){.n_devices = s->jobs[j].devices,
                                .sites =
                                    LHI_NEW(mem, uint32_t, s->jobs[j].devices),
                                .n_iterations = n,
                                .iteration_ns = LHI_NEW(mem, int64_t, n),
                                .labels = LHI_NEW(mem, uint32_t, n),
                                .requested = LHI_NEW(mem, uint32_t, n),
                                .refused = LHI_NEW(mem, uint32_t, n)};
        if (s->failures)
            job->intact_ns = LHI_NEW(mem, int64_t, n);
        if (!job->sites || !job->iteration_ns || !job->labels ||
            !job->requested || !job->refused ||
            (s->failures && !job->intact_ns))
            return NULL;
    }
    return jobs;
}

/* Allocates the result for all policies and seeds; its arena owns everything.
 */
static lh_status make_result(const lh_scenario *s,
                             const lh_optical_options *options, result **out,
                             lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    result *r = mem ? LHI_NEW(mem, result, 1) : NULL;
    bool ok = r != NULL;
    uint32_t n_runs = options->n_seeds ? options->n_seeds : s->n_seeds;
    const uint64_t *seeds = options->n_seeds ? options->seeds : s->seeds;
    if (ok) {
        r->mem = mem;
        r->policies = LHI_NEW(mem, lh_optical_policy, s->n_policies);
        r->optical.n_policies = s->n_policies;
        r->optical.policies = r->policies;
        r->optical.has_failures = s->failures != NULL;
        ok = r->policies != NULL;
    }
    for (uint32_t p = 0; ok && p < s->n_policies; p++) {
        lh_optical_run *runs = LHI_NEW(mem, lh_optical_run, n_runs);
        const char *name = lhi_arena_strdup(mem, s->policies[p].name);
        ok = runs && name;
        for (uint32_t i = 0; ok && i < n_runs; i++) {
            runs[i] = (lh_optical_run){.seed = seeds[i],
                                       .n_jobs = s->n_jobs,
                                       .jobs = make_jobs(s, mem)};
            ok = runs[i].jobs != NULL;
        }
        r->policies[p] =
            (lh_optical_policy){.name = name,
                                .assignment = s->policies[p].assignment,
                                .n_runs = n_runs,
                                .runs = runs};
    }
    if (!ok) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    *out = r;
    return LH_OK;
}

/* Returns the mean over seeds of the lh_optical_job field at offset `at`,
 * averaged over jobs; *sd (may be NULL): its standard deviation over seeds. */
static double average_over_seeds(const lh_optical_policy *p, size_t at,
                                 double *sd)
{
    double sum = 0, squares = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < p->n_runs; i++) {
            const lh_optical_run *run = &p->runs[i];
            double value = 0;
            for (uint32_t j = 0; j < run->n_jobs; j++)
                value += *(
                    const double *)(const void *)((const char *)&run->jobs[j] +
                                                  at);
            value /= run->n_jobs;
            double off = value - sum / p->n_runs;
            if (pass == 0)
                sum += value;
            else
                squares += off * off;
        }
    if (sd)
        *sd = sqrt(squares / p->n_runs);
    return sum / p->n_runs;
}

/* Computes a policy's means and standard deviations over its seeds. */
static void average_policy(lh_optical_policy *p)
{
    p->iteration_s = average_over_seeds(
        p, offsetof(lh_optical_job, iteration_s), &p->iteration_s_sd);
    p->bubble_ratio = average_over_seeds(
        p, offsetof(lh_optical_job, bubble_ratio), &p->bubble_ratio_sd);
    p->blocking_probability =
        average_over_seeds(p, offsetof(lh_optical_job, blocking_probability),
                           &p->blocking_probability_sd);
    p->slots_held =
        average_over_seeds(p, offsetof(lh_optical_job, slots_held), NULL);
    p->lost_s = average_over_seeds(p, offsetof(lh_optical_job, lost_s), NULL);
    for (uint32_t i = 0; i < p->n_runs; i++) {
        const lh_optical_run *run = &p->runs[i];
        double bound = 0;
        for (uint32_t j = 0; j < run->n_jobs; j++)
            bound += (double)run->jobs[j].bound_ns / 1e9;
        p->bound_s += bound / run->n_jobs / p->n_runs;
        if (run->background > 0)
            p->collateral += (double)run->background_refused /
                             (double)run->background / p->n_runs;
    }
}

lh_status lhi_optical_run_scenarios(const lh_scenario *const *scenarios,
                                    uint32_t n,
                                    const lh_optical_options *options,
                                    lh_optical **results, lh_error *err)
{
    lh_optical_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_optical_options, &o, options, err));
    shared_work w = {.options = &o, .cells = calloc(n, sizeof *w.cells)};
    lh_status status = w.cells ? LH_OK : lhi_fail_nomem(err);
    for (; status == LH_OK && w.n_cells < n; w.n_cells++) {
        cell *c = &w.cells[w.n_cells];
        *c = (cell){.s = scenarios[w.n_cells], .first = w.total};
        status = make_result(c->s, &o, &c->result, err);
        if (status != LH_OK)
            break;
        uint64_t total = (uint64_t)w.total + (uint64_t)c->s->n_policies *
                                                 c->result->policies[0].n_runs;
        if (total > UINT32_MAX / 2)
            status = lhi_fail(err, LH_EINPUT,
                              "more than 2^31 simulations: give fewer values, "
                              "policies or seeds");
        w.total = (uint32_t)total;
    }
    atomic_init(&w.next, 0);
    atomic_init(&w.stop, false);
    if (status == LH_OK)
        status = run_threads(&w, err);
    for (uint32_t i = 0; i < w.n_cells; i++) {
        result *r = w.cells[i].result;
        if (status != LH_OK) {
            lhi_arena_free(r->mem);
            continue;
        }
        for (uint32_t p = 0; p < r->optical.n_policies; p++)
            average_policy(&r->policies[p]);
        results[i] = &r->optical;
    }
    free(w.cells);
    return status;
}

lh_status lh_optical_run_all(const lh_scenario *scenario,
                             const lh_optical_options *options,
                             lh_optical **out, lh_error *err)
{
    return lhi_optical_run_scenarios(&scenario, 1, options, out, err);
}

void lh_optical_free(lh_optical *optical)
{
    if (!optical)
        return;
    result *r = (result *)(void *)((char *)optical - offsetof(result, optical));
    lhi_arena_free(r->mem);
}
