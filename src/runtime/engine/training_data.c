/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/training_internal.h"

#include "base/realtime.h"
#include "schedule/pipeline/accessors.h"

/* Returns the first message tag of a chunk's all-gather or, with is_scatter,
 * its reduce-scatter in a step. */
static uint64_t make_data_tag(uint64_t step, uint32_t chunk, bool is_scatter)
{
    return lhi_tag(LHI_TAG_DATA, step, (2 * chunk + is_scatter) * LHI_NET_TAGS);
}

/* Returns the number of a chunk's bucket for tags: first the chunks, then the
 * chunks' expert buckets. A chunk and its copy in the other direction have the
 * same number. */
static uint32_t get_chunk_number(const lhi_training *t, uint32_t chunk,
                                 lhi_train_bucket_kind bucket)
{
    return chunk % lhi_pipeline_count_model_chunks(t->o.pipeline) +
           bucket * t->o.exec->n_chunks;
}

/* Returns the first message tag of sum number `number` over datacenters in step
 * `step`; the tags of sums follow those of all chunks. */
static uint64_t make_sum_tag(const lhi_training *t, uint64_t step,
                             uint32_t number)
{
    uint32_t first = 2 * LHI_N_TRAIN_BUCKETS * t->o.exec->n_chunks;
    uint32_t each = lhi_site_count_sum_tags(&t->group);
    uint32_t experts = lhi_site_count_sum_tags(&t->experts);
    each = each > experts ? each : experts;
    return lhi_tag(LHI_TAG_DATA, step, (first + each * number) * LHI_NET_TAGS);
}

/* Sums a chunk's sharded gradients in one bucket (experts or other parameters)
 * over datacenters. `room`: the bucket's array, unused by then. Raises
 * *ready_ns (NULL: none) to the time at which all ranks were ready. */
static lh_status sum_sites(lhi_training *t, uint64_t step, uint32_t chunk,
                           lhi_train_bucket_kind bucket, float *room,
                           int64_t *ready_ns, lh_error *err)
{
    const bool most = bucket == LHI_BUCKET_DEFAULT;
    const lhi_site_sums sites = {t->o.net, most ? &t->group : &t->experts,
                                 most ? &t->across : &t->expert_across,
                                 t->o.model->reduce_by_leaders};
    size_t n;
    float *sums = lhi_train_get_sums(t->train, chunk, bucket, &n);
    return lhi_sum_sites(
        &sites, sums, n, room,
        make_sum_tag(t, step, get_chunk_number(t, chunk, bucket)), ready_ns,
        err);
}

/* All-gathers a chunk's updated parameters in one bucket (experts or others).
 * With a shared clock, raises *ready_ns to the time at which all replicas were
 * ready. */
static lh_status gather_bucket(lhi_training *t, uint64_t step, uint32_t chunk,
                               lhi_train_bucket_kind bucket, int64_t *ready_ns,
                               lh_error *err)
{
    lhi_net_group group = bucket == LHI_BUCKET_DEFAULT ? t->group : t->experts;
    float *values;
    size_t n;
    group.latest_ns = t->o.shared_clock ? ready_ns : NULL;
    lhi_train_parameters(t->train, chunk, bucket, &values, &n);
    if (n == 0)
        return LH_OK;
    return lhi_net_all_gather(
        t->o.net, &group,
        make_data_tag(step, get_chunk_number(t, chunk, bucket), false), values,
        n, sizeof *values, err);
}

lh_status lhi_training_gather_chunk(lhi_training *t, uint64_t step,
                                    uint32_t chunk, int64_t *ready_ns,
                                    lh_error *err)
{
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++)
        LHI_TRY(gather_bucket(t, step, chunk, (lhi_train_bucket_kind)i,
                              ready_ns, err));
    return LH_OK;
}

/* Reduce-scatters a chunk's gradients in one bucket (experts or others);
 * *values receives its array. With a shared clock, raises *ready_ns to the
 * time at which all replicas were ready. */
static lh_status scatter_bucket(lhi_training *t, uint64_t step, uint32_t chunk,
                                lhi_train_bucket_kind bucket,
                                const float **values, int64_t *ready_ns,
                                lh_error *err)
{
    lhi_net_group group = bucket == LHI_BUCKET_DEFAULT ? t->group : t->experts;
    float *out;
    size_t n;
    group.latest_ns = t->o.shared_clock ? ready_ns : NULL;
    lhi_train_gradients(t->train, chunk, bucket, values, &n, &out);
    if (n == 0)
        return LH_OK;
    return lhi_net_reduce_scatter(
        t->o.net, &group,
        make_data_tag(step, get_chunk_number(t, chunk, bucket), true), *values,
        n, out, err);
}

lh_status lhi_training_scatter_chunk(lhi_training *t, uint64_t step,
                                     uint32_t chunk, int64_t *ready_ns,
                                     lh_error *err)
{
    int64_t *ready = t->o.shared_clock ? ready_ns : NULL;
    for (uint32_t i = LHI_N_TRAIN_BUCKETS; i-- > 0;) {
        lhi_train_bucket_kind bucket = (lhi_train_bucket_kind)i;
        const float *values;
        LHI_TRY(scatter_bucket(t, step, chunk, bucket, &values, ready_ns, err));
        LHI_TRY(sum_sites(t, step, chunk, bucket, (float *)(uintptr_t)values,
                          ready, err));
    }
    return LH_OK;
}

/* --- times --- */

/* Returns the record of a completed all-gather or, with is_scatter,
 * reduce-scatter of a chunk, for which all replicas were ready at ready_ns:
 * with measured times, or as emulated on the stage's data-parallel link, which
 * carries one at a time. Called with the lock held. */
static lhi_collective_record time_collective(lhi_training *t, uint32_t chunk,
                                             bool is_scatter, int64_t ready_ns)
{
    const lh_chunk *c = &t->times[chunk];
    int64_t takes = is_scatter ? c->reduce_scatter_ns : c->all_gather_ns;
    int64_t depart = ready_ns, sent = lhi_now_ns(), latency = 0;
    if (t->o.emulates) {
        depart = ready_ns > t->data_free_ns ? ready_ns : t->data_free_ns;
        sent = depart + takes;
        latency = takes > 0 ? c->dp_latency_ns : 0;
        t->data_free_ns = sent;
    }
    return (lhi_collective_record){chunk,  is_scatter, LH_NONE,        ready_ns,
                                   depart, sent,       sent + latency, 0};
}

/* Adds the record of a completed all-gather or, with is_scatter, reduce-scatter
 * of a chunk, ready at ready_ns, to the step's records; returns its arrival
 * time in ns. */
static int64_t record_collective(lhi_training *t, uint32_t chunk,
                                 bool is_scatter, int64_t ready_ns)
{
    lhi_collective_record *x = &t->collectives[t->n_collectives++];
    *x = time_collective(t, chunk, is_scatter, ready_ns);
    if (x->arrive_ns > t->last_ns)
        t->last_ns = x->arrive_ns;
    return x->arrive_ns;
}

lh_status lhi_training_gather_chunks(lhi_training *t, uint64_t step,
                                     lh_error *err)
{
    int64_t begin_ns = lhi_now_ns(), last_ns = begin_ns;
    pthread_mutex_lock(&t->lock);
    t->data_free_ns = begin_ns;
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->n_mine; i++) {
        int64_t ready_ns = begin_ns;
        LHI_TRY(
            lhi_training_gather_chunk(t, step, t->gathers[i], &ready_ns, err));
        lhi_train_gathered(t->train, t->gathers[i]);
        pthread_mutex_lock(&t->lock);
        last_ns = time_collective(t, t->gathers[i], false, ready_ns).arrive_ns;
        pthread_mutex_unlock(&t->lock);
    }
    return t->has_thread && t->o.emulates
               ? lhi_sleep_emulated(t->o.net, t->o.stop, last_ns, err)
               : LH_OK;
}

/* --- thread --- */

/* Runs a step's collectives: with `gathers` all chunks' all-gathers at once,
 * then each reduce-scatter when its chunk's last pass has ended. */
static lh_status run_round(lhi_training *t, uint64_t step, bool gathers)
{
    for (uint32_t i = 0; gathers && i < t->n_mine; i++) {
        uint32_t chunk = t->gathers[i];
        int64_t ready_ns = t->begin_ns;
        LHI_TRY(lhi_training_gather_chunk(t, step, chunk, &ready_ns, &t->err));
        pthread_mutex_lock(&t->lock);
        t->arrive_ns[chunk] = record_collective(t, chunk, false, ready_ns);
        t->gathered[chunk] = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
    for (uint32_t i = 0; i < t->n_mine; i++) {
        uint32_t chunk = t->scatters[i];
        pthread_mutex_lock(&t->lock);
        while (!t->ended[chunk] && !t->stop)
            pthread_cond_wait(&t->changed, &t->lock);
        bool stop = t->stop;
        int64_t ready_ns = t->ended_ns[chunk];
        pthread_mutex_unlock(&t->lock);
        if (stop)
            return lhi_fail(&t->err, LH_ECANCELED, "stopped");
        LHI_TRY(lhi_training_scatter_chunk(t, step, chunk, &ready_ns, &t->err));
        pthread_mutex_lock(&t->lock);
        record_collective(t, chunk, true, ready_ns);
        t->n_scattered++;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
    return LH_OK;
}

void *lhi_training_thread(void *of)
{
    lhi_training *t = of;
    uint64_t round = 0;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (t->round == round) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        round = t->round;
        uint64_t step = t->step;
        bool gathers = t->round_gathers;
        pthread_mutex_unlock(&t->lock);
        lh_status status = run_round(t, step, gathers);
        pthread_mutex_lock(&t->lock);
        if (status != LH_OK)
            t->status = status;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}
