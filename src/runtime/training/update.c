/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer step: clipping, learning rate, AdamW on the owned values. */
#include "base/fail.h"
#include "runtime/training/train_internal.h"

#include <inttypes.h>
#include <math.h>

/* Returns the learning rate of step `step`: rises linearly to `rate`, stays
 * until the decay begins, then falls to min_rate, in a line or along half a
 * cosine (arXiv:1608.03983, equation 5, without restarts). */
static double compute_rate(const lhi_train_options *o, uint64_t step)
{
    uint64_t begin = o->warmup;
    if (step < o->warmup)
        return o->rate * (double)(step + 1) / (double)o->warmup;
    if (o->decay_steps > 0 && o->decay_steps < o->steps &&
        o->steps - o->decay_steps > begin)
        begin = o->steps - o->decay_steps;
    if (step < begin || o->rate_decay == LH_RATE_DECAY_CONSTANT)
        return o->rate;
    if (step >= o->steps)
        return o->min_rate;
    double done = (double)(step - begin) / (double)(o->steps - begin);
    if (o->rate_decay == LH_RATE_DECAY_LINEAR)
        return o->rate + (o->min_rate - o->rate) * done;
    return o->min_rate + (o->rate - o->min_rate) *
                             (1 + cos(3.14159265358979323846 * done)) / 2;
}

/* Returns the squared gradient norm from a tally that is summed over all ranks:
 * sums over ranks, then over tensors. */
static double sum_squares(const lhi_train *train, const double *tally)
{
    double all = 0;
    uint32_t ranks = train->o.n_replicas * train->o.most_tensor;
    for (uint32_t i = 0; i < train->n_tensors; i++) {
        double tensor = 0;
        for (uint32_t r = 0; r < ranks; r++)
            tensor += tally[(size_t)i * ranks + r];
        all += tensor;
    }
    return all;
}

/* Returns the model's mean loss per token from a tally summed over all ranks;
 * *tokens: number of tokens; *modules: mean loss of multi-token prediction, NAN
 * without it. */
static double sum_losses(const lhi_train *train, const double *tally,
                         uint64_t *tokens, double *modules)
{
    uint32_t replicas = train->o.n_replicas;
    const double *losses =
        tally + (size_t)train->n_tensors * train->o.most_tensor * replicas;
    double sum = 0, count = 0, further = 0;
    for (uint32_t r = 0; r < replicas; r++) {
        sum += losses[r];
        count += losses[replicas + r];
        further += losses[2 * replicas + r];
    }
    *modules =
        train->o.model->mtp_layers > 0 && count > 0 ? further / count : NAN;
    *tokens = (uint64_t)count;
    return count > 0 ? sum / count : 0;
}

/* Moves this rank's shard of the experts' balancing biases by a fixed amount:
 * up for experts chosen less often than the mean (negative `gradient`), down
 * for the others (arXiv:2408.15664, algorithm 1). */
static void move_bias(const lhi_train *train, const lhi_owned_tensor *own,
                      const float *gradient)
{
    float by = (float)train->o.balance_bias;
    for (size_t i = 0; i < own->n; i++)
        if (gradient[i] != 0)
            own->value[i] += gradient[i] < 0 ? by : -by;
}

/* Updates this rank's shard of a tensor from its gradient: with AdamW under the
 * settings `how`, or as a balancing bias of experts. */
static void update_tensor(const lhi_train *train, const lhi_owned_tensor *own,
                          const float *gradient, lhi_adamw how)
{
    if (own->tensor->balances) {
        move_bias(train, own, gradient);
        return;
    }
    if (!own->tensor->decays)
        how.decay = 0;
    train->k->adamw(&how, own->value, own->moments[0], own->moments[1],
                    gradient, own->n);
}

/* Updates a tensor with the gradients that the previous step stored, which are
 * already clipped, and stores this step's clipped gradients. The first step
 * applies nothing, not even weight decay. */
static void update_delayed(const lhi_train *train, const lhi_owned_tensor *own,
                           lhi_adamw how)
{
    float scale = own->tensor->balances ? 1 : how.scale;
    float *late = own->moments[2];
    how.scale = 1;
    if (train->step > 0)
        update_tensor(train, own, late, how);
    for (size_t i = 0; i < own->n; i++)
        late[i] = own->gradient[i] * scale;
}

lh_status lhi_train_update(lhi_train *train, const double *tally,
                           lhi_train_report *report, lh_error *err)
{
    const lhi_train_options *o = &train->o;
    lhi_train_report r = {.step = train->step};
    r.loss = sum_losses(train, tally, &r.tokens, &r.modules_loss);
    r.norm = sqrt(sum_squares(train, tally));
    r.rate = compute_rate(o, train->step);
    bool is_lost = !isfinite(r.loss) ||
                   (o->model->mtp_layers > 0 && !isfinite(r.modules_loss));
    if (is_lost || !isfinite(r.norm))
        return lhi_fail(err, LH_EINPUT,
                        "step %" PRIu64 ": the %s is not finite; the learning "
                        "rate is too high for this model, or "
                        "its weights are damaged",
                        r.step, is_lost ? "loss" : "gradient");
    /* Number of updates including this one. */
    double t = (double)(train->step + 1 - (o->delayed && train->step > 0));
    lhi_adamw how = {
        .rate = (float)r.rate,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .epsilon = (float)o->epsilon,
        .decay = (float)o->weight_decay,
        .correction1 = (float)(1 / (1 - pow(o->beta1, t))),
        .correction2 = (float)(1 / sqrt(1 - pow(o->beta2, t))),
        .scale = 1,
    };
    if (o->clip > 0 && r.norm > o->clip)
        how.scale = (float)(o->clip / (r.norm + 1e-6));
    for (uint32_t i = 0; i < o->n_mine; i++)
        for (uint32_t j = 0; j < train->chunks[i].n_tensors; j++) {
            const lhi_owned_tensor *own = &train->chunks[i].owned[j];
            if (o->delayed)
                update_delayed(train, own, how);
            else
                update_tensor(train, own, own->gradient, how);
        }
    train->step++;
    *report = r;
    return LH_OK;
}

lh_status lhi_train_reduce_validation(lhi_train *train, const double *tally,
                                      double *loss, lh_error *err)
{
    uint64_t tokens;
    double modules, mean = sum_losses(train, tally, &tokens, &modules);
    if (tokens == 0 || !isfinite(mean))
        return lhi_fail(err, LH_EINPUT,
                        "step %" PRIu64 ": the validation loss is not finite",
                        train->step);
    *loss = mean;
    return LH_OK;
}
