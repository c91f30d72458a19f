/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a run, as threads or as processes, and puts together
 * what came of it. */
#define _GNU_SOURCE
#include "base/options.h"
#include "engine/steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEFAULT_MESSAGE_BYTES = 65536, DEFAULT_SLIP_NS = 20000000 };

/* --- links -------------------------------------------------------------------
 */

lh_status lhi_job_links(const lhi_job *job, lhi_net_link *links, lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    bool *seen = calloc((size_t)p->n_resources + 1, sizeof *seen);
    lh_status status = seen ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < p->n_links; i++) {
        const lh_link *l = &p->links[i];
        lhi_net_link *to = &links[p->link_resources[i]];
        if (seen[p->link_resources[i]] && (to->latency_ns != l->latency_ns ||
                                           to->transfer_ns != l->transfer_ns))
            status = lhi_fail(err, LH_EUNSUPPORTED,
                              "link '%.60s' has another latency or transfer "
                              "between ranks %" PRIu32 " and %" PRIu32
                              " than before; to be emulated, links that share "
                              "a name must be alike",
                              l->name, l->from, l->to);
        *to = (lhi_net_link){l->latency_ns, l->transfer_ns, 0};
        seen[p->link_resources[i]] = true;
    }
    free(seen);
    return status;
}

/* --- ranks as threads
 * ---------------------------------------------------------- */

typedef struct thread {
    const lhi_job *job;
    lhi_net *net;
    pthread_t id;
    char *result;
    size_t size;
    lhi_left left;
    lh_status status;
    lh_error err;
} thread;

static void *thread_main(void *of)
{
    thread *t = of;
    t->status =
        lhi_job_rank(t->job, t->net, &t->result, &t->size, &t->left, &t->err);
    return NULL;
}

/* The first cause: what the transport knows of it, or a rank's own error. */
static lh_status first_failure(const thread *threads, uint32_t n, lh_error *err)
{
    lh_status status = LH_OK;
    const char *why = lhi_net_failure(threads[0].net);
    for (uint32_t i = 0; i < n; i++)
        if (threads[i].status != LH_OK &&
            (status == LH_OK || status == LH_EIO)) {
            status = threads[i].status; /* not what the others were told */
            if (err)
                *err = threads[i].err;
        }
    if (status == LH_OK)
        return LH_OK;
    return lhi_fail(err, status, "%s", why ? why : "a rank failed");
}

static lh_status start_threads(thread *threads, uint32_t n, lh_error *err)
{
    lh_status status = LH_OK;
    uint32_t started = 0;
    for (; started < n; started++)
        if (pthread_create(&threads[started].id, NULL, thread_main,
                           &threads[started]) != 0) {
            status = lhi_fail(err, LH_EIO,
                              "cannot start a thread for rank "
                              "%" PRIu32,
                              started);
            lhi_net_abort(threads[0].net, "cannot start a thread");
            break;
        }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    return status == LH_OK ? first_failure(threads, n, err) : status;
}

static lh_status run_threads(const lhi_job *job, const lhi_net_link *links,
                             char **text, size_t *size, lh_error *err)
{
    uint32_t n = job->exec->n_ranks * job->n_replicas;
    thread *threads = calloc(n, sizeof *threads);
    lhi_net **nets = calloc(n, sizeof *nets);
    lh_status status = threads && nets ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_net_inproc(n, job->exec->n_links, links, nets, err);
    if (status == LH_OK) {
        for (uint32_t i = 0; i < n; i++) {
            threads[i].job = job;
            threads[i].net = nets[i];
            if (job->devices)
                threads[i].left.device = job->devices[i];
        }
        status = start_threads(threads, n, err);
        for (uint32_t i = 0; i < n; i++)
            lhi_net_close(nets[i]);
        for (uint32_t i = 0; i < n; i++)
            lhi_job_leave(&threads[i].left);
        *text = threads[0].result;
        *size = threads[0].size;
    }
    free(threads);
    free(nets);
    return status;
}

/* --- ranks as processes ----------------------------------------------------
 */

/* Of an interrupted run a process hands back nothing; what it has goes through
 * memory that it shares with the one that started it. */
typedef struct forked {
    const lhi_job *job;
    char *shared;
    size_t room;
} forked;

/* What stays when a rank has failed goes with its process. */
static lh_status process_main(lhi_net *net, void *of, char **result,
                              size_t *size, lh_error *err)
{
    const forked *f = of;
    lhi_left left;
    lh_status status = lhi_job_rank(f->job, net, result, size, &left, err);
    if (status == LH_OK)
        lhi_job_leave(&left);
    else if (*result && *size <= f->room - sizeof *size) {
        memcpy(f->shared, size, sizeof *size);
        memcpy(f->shared + sizeof *size, *result, *size);
    }
    return status;
}

static lh_status take_shared(const forked *f, char **text, size_t *size,
                             lh_error *err)
{
    memcpy(size, f->shared, sizeof *size);
    if (*size == 0)
        return LH_OK;
    *text = malloc(*size);
    if (!*text)
        return lhi_fail_nomem(err);
    memcpy(*text, f->shared + sizeof *size, *size);
    return LH_OK;
}

static lh_status fork_ranks(const forked *f, const lhi_net_link *links,
                            char **text, size_t *size, lh_error *err)
{
    const lhi_job *job = f->job;
    uint32_t n = job->exec->n_ranks * job->n_replicas;
    lhi_rank_result *results = calloc(n, sizeof *results);
    forked copy = *f;
    if (!results)
        return lhi_fail_nomem(err);
    lh_status status = lhi_local_run(n, job->exec->n_links, links, process_main,
                                     &copy, results, err);
    *text = results[0].text;
    *size = results[0].size;
    for (uint32_t i = 1; i < n; i++)
        free(results[i].text);
    free(results);
    if (status == LH_ECANCELED && take_shared(f, text, size, err) != LH_OK)
        return LH_ENOMEM;
    return status;
}

static lh_status run_processes(const lhi_job *job, const lhi_net_link *links,
                               char **text, size_t *size, lh_error *err)
{
    forked f = {.job = job,
                .room = sizeof(size_t) + sizeof(lhi_heading) +
                        ((size_t)job->o.steps + 1) * sizeof(lh_iteration)};
    f.shared = mmap(NULL, f.room, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f.shared == MAP_FAILED)
        return lhi_fail_nomem(err);
    lh_status status = fork_ranks(&f, links, text, size, err);
    munmap(f.shared, f.room);
    return status;
}

/* --- both ------------------------------------------------------------------
 */

static const struct {
    const char *name;
    lh_status (*run)(const lhi_job *job, const lhi_net_link *links, char **text,
                     size_t *size, lh_error *err);
    bool forks;
} transports[] = {
    {"inproc", run_threads, false},
    {"local", run_processes, true},
    {"ucx", lhi_job_launched, true},
    {"tcp", lhi_job_launched, true},
};
enum { N_TRANSPORTS = sizeof transports / sizeof *transports };

static uint32_t find_transport(const char *name)
{
    uint32_t i = 0;
    while (i < N_TRANSPORTS && strcmp(transports[i].name, name) != 0)
        i++;
    return i;
}

static lh_status check_options(const lh_train_options *options,
                               lh_train_options *out, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_TAKE(lh_train_options, out, options, err));
    if (!out->transport)
        out->transport = "inproc";
    if (find_transport(out->transport) == N_TRANSPORTS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "there is no transport '%.40s'; inproc, local, ucx and "
                        "tcp are there",
                        out->transport);
    if (out->steps == 0)
        out->steps = 1;
    if (out->message_bytes == 0)
        out->message_bytes = DEFAULT_MESSAGE_BYTES;
    if (out->slip_ns == 0)
        out->slip_ns = DEFAULT_SLIP_NS;
    return LH_OK;
}

static lh_status run(const lhi_job *job, lh_train_result **out, lh_error *err)
{
    uint32_t n = job->pipeline->n_resources;
    uint32_t transport = find_transport(job->o.transport);
    lhi_net_link *links = calloc((size_t)n + 1, sizeof *links);
    char *text = NULL;
    size_t size = 0;
    lh_status status = links ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && job->emulates)
        status = lhi_job_links(job, links, err);
    if (status == LH_OK)
        status = transports[transport].run(job, links, &text, &size, err);
    if (status == LH_OK || (status == LH_ECANCELED && text))
        status = lhi_outcome_read(job, text, size, out, err);
    free(text);
    free(links);
    return status;
}

static lh_status check_plan(const lh_pipeline *pipeline, const lh_exec *exec,
                            lh_error *err)
{
    if (lh_pipeline_n_devices(pipeline) != exec->n_ranks ||
        lh_pipeline_n_chunks(pipeline) != exec->n_chunks ||
        pipeline->n_resources != exec->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "the execution plan is of another pipeline");
    return LH_OK;
}

lh_status lh_train_timed(const lh_pipeline *pipeline, const lh_exec *exec,
                         const lh_train_options *options, lh_train_result **out,
                         lh_error *err)
{
    lhi_job job = {.pipeline = pipeline, .exec = exec, .n_replicas = 1};
    LHI_TRY(check_plan(pipeline, exec, err));
    LHI_TRY(check_options(options, &job.o, err));
    job.emulates = !job.o.real_links;
    job.shared_clock = job.emulates;
    return run(&job, out, err);
}

/* --- training --------------------------------------------------------------
 */

lh_train_model lh_train_model_defaults(void)
{
    return (lh_train_model){.size = sizeof(lh_train_model),
                            .micro_batch = 1,
                            .replicas = 1,
                            .rate = NAN,
                            .min_rate = NAN,
                            .weight_decay = NAN,
                            .clip = NAN,
                            .warmup = UINT64_MAX};
}

static lh_status open_data(const lh_train_model *m, lhi_data **out,
                           lh_error *err)
{
    lhi_data_options with = {.path = m->data,
                             .tokenizer = m->tokenizer,
                             .vocab = m->model->vocab,
                             .sequence = m->sequence,
                             .validation = m->validation,
                             .seed = m->seed};
    if (m->token_bytes == 2)
        with.kind = LHI_DATA_U16;
    else if (m->token_bytes == 4)
        with.kind = LHI_DATA_U32;
    else if (m->token_bytes != 0)
        return lhi_fail(err, LH_EINVAL, "tokens of %" PRIu32 " bytes; 2 or 4",
                        m->token_bytes);
    return lhi_data_open(&with, out, err);
}

static lh_status check_model(const lh_train_model *m, const lh_exec *exec,
                             lh_error *err)
{
    if (!m->model || !m->first_layers || !m->data || m->micro_batch == 0 ||
        m->sequence == 0)
        return lhi_fail(err, LH_EINVAL,
                        "training needs a model, its layers' chunks, data, a "
                        "microbatch and a sequence");
    uint32_t n = exec->n_chunks;
    bool rises =
        m->first_layers[0] == 0 && m->first_layers[n] == m->model->layers;
    for (uint32_t c = 0; c < n; c++)
        rises = rises && m->first_layers[c] <= m->first_layers[c + 1];
    if (!rises)
        return lhi_fail(err, LH_EINVAL,
                        "the chunks do not hold each of the model's %" PRIu32
                        " layers once, in order",
                        m->model->layers);
    return LH_OK;
}

/* Ranks that are threads get devices from here: the first one of a process
 * must be made before there are threads. */
static lh_status make_devices(lhi_job *job, lh_error *err)
{
    uint32_t n = job->exec->n_ranks * job->n_replicas, made = 0;
    lh_status status = LH_OK;
    job->devices = calloc(n, sizeof *job->devices);
    if (!job->devices)
        return lhi_fail_nomem(err);
    while (made < n && (status = lhi_job_device(job, made, &job->devices[made],
                                                err)) == LH_OK)
        made++;
    if (status == LH_OK)
        return LH_OK;
    for (uint32_t i = 0; i < made; i++)
        job->devices[i]->ops->close(job->devices[i]);
    free(job->devices);
    job->devices = NULL;
    return status;
}

lh_status lh_train_cpu(const lh_pipeline *pipeline, const lh_exec *exec,
                       const lh_train_model *model,
                       const lh_train_options *options, lh_train_result **out,
                       lh_error *err)
{
    lhi_data *data;
    lh_train_model m;
    LHI_TRY(check_plan(pipeline, exec, err));
    LHI_TRY(LHI_OPTIONS_TAKE(lh_train_model, &m, model, err));
    LHI_TRY(check_model(&m, exec, err));
    lhi_job job = {.pipeline = pipeline,
                   .exec = exec,
                   .n_replicas = m.replicas ? m.replicas : 1,
                   .emulates = m.emulate_links,
                   .model = &m};
    LHI_TRY(check_options(options, &job.o, err));
    job.shared_clock =
        transports[find_transport(job.o.transport)].run != lhi_job_launched;
    LHI_TRY(open_data(&m, &data, err));
    job.data = data;
    lh_status status = LH_OK;
    if (!transports[find_transport(job.o.transport)].forks)
        status = make_devices(&job, err);
    if (status == LH_OK)
        status = run(&job, out, err);
    free(job.devices);
    lhi_data_close(data);
    return status;
}
