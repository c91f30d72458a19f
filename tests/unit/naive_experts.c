/* SPDX-License-Identifier: Apache-2.0 */
/* MoE layer for naive_llama, row by row. */
#include "naive_parts.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Routing of one row. */
typedef struct routed {
    double p[NAIVE_MOST_EXPERTS];     /* scores */
    double share[NAIVE_MOST_EXPERTS]; /* 0: not chosen, or over capacity */
    bool is[NAIVE_MOST_EXPERTS];      /* chosen */
    int nth[NAIVE_MOST_EXPERTS];      /* rank of the choice */
} routed;

/* Returns the number of values better than x[of]; ties go to the lower index.
 */
static uint32_t better(const double *x, uint32_t n, uint32_t of)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += x[i] > x[of] || (x[i] == x[of] && i < of);
    return count;
}

/* Lowers the ratings in groups that are not chosen below all others. */
static void leave_groups(const lh_model *m, double *rating)
{
    uint32_t groups = m->expert_groups, size = m->experts / groups;
    double of[NAIVE_MOST_EXPERTS] = {0};
    bool sum_of_two = m->router == LH_ROUTER_SIGMOID && size > 1;
    for (uint32_t e = 0; e < m->experts; e++) {
        const double *group = rating + e / size * size;
        uint32_t place = better(group, size, e % size);
        if (place == 0 || (place == 1 && sum_of_two))
            of[e / size] += rating[e];
    }
    for (uint32_t e = 0; e < m->experts; e++)
        if (better(of, groups, e / size) >= m->groups_per_token)
            rating[e] -= 1e9;
}

static routed route(const naive_llama *n, const naive_layer *w, const double *x)
{
    const lh_model *m = n->model;
    routed r = {{0}, {0}, {0}, {0}};
    uint32_t experts = m->experts;
    double all = 0, chosen = 0, rating[NAIVE_MOST_EXPERTS];
    bool sigmoid = m->router == LH_ROUTER_SIGMOID;
    naive_linear(x, &w->router, r.p, 1);
    for (uint32_t e = 0; e < experts; e++) {
        r.p[e] = sigmoid ? 1 / (1 + exp(-r.p[e])) : exp(r.p[e]);
        all += r.p[e];
    }
    for (uint32_t e = 0; e < experts; e++) {
        r.p[e] /= sigmoid ? 1 : all;
        rating[e] = r.p[e] + (w->router_bias ? w->router_bias[e] : 0);
    }
    if (m->expert_groups)
        leave_groups(m, rating);
    for (uint32_t e = 0; e < experts; e++) {
        r.nth[e] = (int)better(rating, experts, e);
        r.is[e] = r.nth[e] < (int)m->experts_per_token;
        chosen += r.is[e] ? r.p[e] : 0;
    }
    for (uint32_t e = 0; e < experts; e++)
        if (r.is[e])
            r.share[e] = (m->routed_scale > 0 ? m->routed_scale : 1) * r.p[e] /
                         (m->unnormalised_scores ? 1 : chosen);
    return r;
}

/* Routes all rows of a sequence; tokens over an expert's capacity get no share.
 */
static routed *route_all(const naive_llama *n, const naive_layer *w,
                         const double *x, size_t s)
{
    const lh_model *m = n->model;
    routed *r = calloc(s + 1, sizeof *r);
    uint32_t taken[NAIVE_MOST_EXPERTS] = {0};
    double most =
        ceil(n->capacity * (double)s * m->experts_per_token / m->experts);
    if (!r)
        abort();
    for (size_t t = 0; t < s; t++)
        r[t] = route(n, w, x + t * m->hidden);
    for (int nth = 0; nth < (int)m->experts_per_token; nth++)
        for (size_t t = 0; t < s; t++)
            for (uint32_t e = 0; e < m->experts; e++)
                if (r[t].nth[e] == nth && n->capacity > 0 && taken[e]++ >= most)
                    r[t].share[e] = 0;
    return r;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* y += share times one expert's output for x. */
static void expert_forward(const naive_matrix *w, const double *x, double share,
                           double *y, size_t h, size_t f)
{
    double *gate = naive_doubles(f), *up = naive_doubles(f),
           *out = naive_doubles(h);
    naive_linear(x, &w[0], gate, 1);
    naive_linear(x, &w[1], up, 1);
    for (size_t i = 0; i < f; i++)
        up[i] *= silu(gate[i]);
    naive_linear(up, &w[2], out, 1);
    for (size_t i = 0; i < h; i++)
        y[i] += share * out[i];
    free(gate);
    free(up);
    free(out);
}

/* Returns the gate that scales the shared experts' output. */
static double gate_of(const naive_layer *w, const double *x)
{
    double logit = 0;
    if (!w->shared_gate.w)
        return 1;
    naive_linear(x, &w->shared_gate, &logit, 1);
    return 1 / (1 + exp(-logit));
}

void naive_experts_forward(const naive_llama *n, const naive_layer *w,
                           const double *x, double *y, size_t s)
{
    size_t h = n->model->hidden, f = n->model->expert_ffn;
    routed *r = route_all(n, w, x, s);
    for (size_t t = 0; t < s; t++) {
        for (uint32_t e = 0; e < n->model->experts; e++)
            if (r[t].share[e] > 0)
                expert_forward(w->experts[e], x + t * h, r[t].share[e],
                               y + t * h, h, f);
        if (n->model->shared_expert_ffn)
            expert_forward(w->shared, x + t * h, gate_of(w, x + t * h),
                           y + t * h, h, n->model->shared_expert_ffn);
    }
    free(r);
}

/* Backward through one expert for one row, from `d` to dx; returns the dot
 * product of the expert's output and `d`. */
static double expert_back(const naive_matrix *w, const double *x,
                          const double *d, double share, double *dx, size_t h,
                          size_t f)
{
    double *gate = naive_doubles(f), *up = naive_doubles(f),
           *act = naive_doubles(f);
    double *out = naive_doubles(h), *scaled = naive_doubles(h),
           *d_act = naive_doubles(f);
    double worth = 0;
    naive_linear(x, &w[0], gate, 1);
    naive_linear(x, &w[1], up, 1);
    for (size_t i = 0; i < f; i++)
        act[i] = silu(gate[i]) * up[i];
    naive_linear(act, &w[2], out, 1);
    for (size_t i = 0; i < h; i++) {
        worth += out[i] * d[i];
        scaled[i] = share * d[i];
    }
    naive_linear_back(act, &w[2], scaled, d_act, 1);
    for (size_t i = 0; i < f; i++) {
        double z = 1 / (1 + exp(-gate[i])), was = gate[i];
        gate[i] = d_act[i] * up[i] * (z + was * z * (1 - z));
        up[i] = d_act[i] * silu(was);
    }
    naive_linear_back(x, &w[0], gate, dx, 1);
    naive_linear_back(x, &w[1], up, dx, 1);
    double *all[] = {gate, up, act, out, scaled, d_act};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return worth;
}

/* Returns the probability: the score's fraction of all scores. */
static double part_of(const naive_llama *n, const routed *r, uint32_t e)
{
    double all = 0;
    for (uint32_t i = 0; i < n->model->experts; i++)
        all += r->p[i];
    return r->p[e] / all;
}

/* Coefficient of the balance loss per probability: experts / (k s) times the
 * count of choices of that expert. */
static void balances(const naive_llama *n, const naive_layer *w,
                     const double *x, double *out, size_t s)
{
    size_t h = n->model->hidden;
    for (size_t t = 0; t < s; t++) {
        routed r = route(n, w, x + t * h);
        for (uint32_t e = 0; e < n->model->experts; e++)
            out[e] += r.is[e] * n->balance * n->model->experts /
                      (n->model->experts_per_token * (double)s);
    }
}

/* Backward of the router: from d loss/d share (worth) to gradients of the
 * logits, through shares, probabilities and the score function. */
static void scores_back(const naive_llama *n, const routed *r,
                        const double *worth, const double *of_loss,
                        double scale, double *out)
{
    const lh_model *m = n->model;
    uint32_t experts = m->experts;
    double by = m->routed_scale > 0 ? m->routed_scale : 1, chosen = 0, sum = 0;
    double ds[NAIVE_MOST_EXPERTS] = {0};
    bool sigmoid = m->router == LH_ROUTER_SIGMOID;
    for (uint32_t e = 0; e < experts; e++) {
        chosen += r->is[e] ? r->p[e] : 0;
        sum += r->p[e];
    }
    for (uint32_t e = 0; e < experts; e++) {
        /* Derivative of e's share with respect to score i. */
        for (uint32_t i = 0; i < experts && r->share[e] > 0; i++) {
            if (m->unnormalised_scores)
                ds[i] += i == e ? worth[e] * by : 0;
            else if (r->is[i])
                ds[i] += worth[e] * by *
                         ((i == e) / chosen - r->p[e] / (chosen * chosen));
        }
        for (uint32_t i = 0; i < experts; i++)
            ds[i] +=
                scale * of_loss[e] * ((i == e) / sum - r->p[e] / (sum * sum));
    }
    for (uint32_t e = 0; e < experts; e++) {
        out[e] = 0;
        if (sigmoid)
            out[e] = ds[e] * r->p[e] * (1 - r->p[e]);
        for (uint32_t i = 0; i < experts && !sigmoid; i++)
            out[e] += ds[i] * r->p[i] * ((i == e) - r->p[e]);
    }
}

void naive_experts_back(const naive_llama *n, const naive_layer *w,
                        const double *x, const double *d, double *dx, size_t s,
                        double scale)
{
    const lh_model *m = n->model;
    size_t h = m->hidden, f = m->expert_ffn;
    uint32_t experts = m->experts;
    double of_loss[NAIVE_MOST_EXPERTS] = {0};
    balances(n, w, x, of_loss, s);
    routed *all = route_all(n, w, x, s);
    for (size_t t = 0; t < s; t++) {
        routed r = all[t];
        double worth[NAIVE_MOST_EXPERTS] = {0}, dp[NAIVE_MOST_EXPERTS];
        for (uint32_t e = 0; e < experts; e++)
            if (r.share[e] > 0)
                worth[e] = expert_back(w->experts[e], x + t * h, d + t * h,
                                       r.share[e], dx + t * h, h, f);
        for (uint32_t e = 0; e < experts && w->counts; e++)
            w->counts[e] += r.is[e] * (double)experts - m->experts_per_token;
        scores_back(n, &r, worth, of_loss, scale, dp);
        naive_linear_back(x + t * h, &w->router, dp, dx + t * h, 1);
        if (m->shared_expert_ffn) {
            double g = gate_of(w, x + t * h);
            double of = expert_back(w->shared, x + t * h, d + t * h, g,
                                    dx + t * h, h, m->shared_expert_ffn);
            of *= g * (1 - g);
            if (w->shared_gate.w)
                naive_linear_back(x + t * h, &w->shared_gate, &of, dx + t * h,
                                  1);
        }
    }
    free(all);
}

/* Returns a sequence's balance loss, times s. */
double naive_balance_loss(const naive_llama *n, const naive_layer *w,
                          const double *x, size_t s)
{
    double by[NAIVE_MOST_EXPERTS] = {0}, loss = 0;
    balances(n, w, x, by, s);
    for (size_t t = 0; t < s; t++) {
        routed r = route(n, w, x + t * n->model->hidden);
        for (uint32_t e = 0; e < n->model->experts; e++)
            loss += by[e] * part_of(n, &r, e);
    }
    return loss;
}
