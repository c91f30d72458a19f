/* SPDX-License-Identifier: Apache-2.0 */
/* Computes Adaptra's figures 3 and 18: a slow link between replicas, and hosts
 * that swap their stages. */
#include "adaptra.h"

#include <longhaul/experimental/host_placement.h>
#include <longhaul/experimental/methods.h>

#include <stdlib.h>

/* The 7B model on two replicas with four stages; n and t as in figure 14. A
 * message has TOKENS tokens with 4096 values, a stage's gradients a quarter of
 * the weights, two bytes each; a link carries 400 Gb/s. */
static const adaptra_setting seven = {4, 8, 12.4};
enum { REPLICAS = 2, HOSTS = 8, PACKETS = 80 /* per message: 10 / 0.125 ms */ };
/* FEW_TOKENS: the sequence length of the predictions from jobs. */
enum { TOKENS = 4096, FEW_TOKENS = 2048, VALUES = 4096 };
static const double data_bytes = 7e9 / 4 * 2;
static const double bytes_per_ns = 50;

/* The experiment's pipeline, replicas and hosts. */
typedef struct cluster {
    lh_pipeline *pipeline;
    lh_host_placement *places;
    lh_schedule *zb;
} cluster;

static int64_t to_ns(double ns)
{
    return (int64_t)(ns + 0.5);
}

static cluster make_cluster(double tokens)
{
    const double message_bytes = tokens * VALUES * 2;
    double delays[ADAPTRA_MOST_STAGES];
    paper_pipeline q = adaptra_pipe(&seven, 0, 0, delays);
    lh_pipeline *plain = paper_pipeline_build(&q);
    lh_pipeline_desc d = {.size = sizeof d};
    lh_chunk chunks[ADAPTRA_MOST_STAGES];
    lh_link links[2 * ADAPTRA_MOST_STAGES];
    const lh_host_placement_options o = {.size = sizeof o,
                                         .n_replicas = REPLICAS};
    cluster c = {0};
    lh_error err = {0};

    paper_check_status(lh_pipeline_describe(plain, &d, &err), &err);
    for (uint32_t i = 0; i < d.n_chunks; i++) {
        chunks[i] = d.chunks[i];
        /* In a ring over two hosts each link carries half the data. */
        chunks[i].all_gather_ns = to_ns(data_bytes / 2 / bytes_per_ns);
        chunks[i].reduce_scatter_ns = chunks[i].all_gather_ns;
    }
    for (uint32_t i = 0; i < d.n_links; i++) {
        links[i] = d.links[i];
        links[i].transfer_ns = to_ns(message_bytes / bytes_per_ns);
    }
    d.chunks = chunks;
    d.links = links;
    paper_check_status(lh_pipeline_make(&d, &c.pipeline, &err), &err);
    paper_check_status(lh_host_placement_make(c.pipeline, &o, &c.places, &err),
                       &err);
    paper_check_status(
        lh_method_run("zb-h2", c.pipeline, NULL, &c.zb, NULL, &err), &err);
    lh_pipeline_free(plain);
    return c;
}

static void free_cluster(cluster *c)
{
    lh_schedule_free(c->zb);
    lh_host_placement_free(c->places);
    lh_pipeline_free(c->pipeline);
}

/* Adds a delay per message to every link between the hosts of two sets, in both
 * directions. */
static uint32_t add_slow_links(unsigned some, unsigned others, double ms,
                               lh_host_link_delay *links)
{
    uint32_t n = 0;

    for (uint32_t a = 0; a < HOSTS; a++)
        for (uint32_t b = 0; b < HOSTS; b++)
            if ((some >> a & 1 && others >> b & 1) ||
                (some >> b & 1 && others >> a & 1))
                links[n++] = (lh_host_link_delay){
                    .from = a, .to = b, .transfer_ns = to_ns(ms * 1e6)};
    return n;
}

/* Returns the makespan in ms for a placement of hosts on stages. */
static double placement_ms(const cluster *c, const lh_host_slowdowns *now,
                           const uint32_t *hosts, adaptra_system system)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};

    paper_check_status(
        lh_host_placement_pipeline(c->places, now, hosts, &p, &err), &err);
    double ms = paper_run_on(p, &adaptra_runs[system]).ms;
    lh_pipeline_free(p);
    return ms;
}

/* Searches for the best host exchange. */
static lh_host_exchange *find_exchange(const cluster *c,
                                       const lh_host_slowdowns *now)
{
    const paper_run *zb = &adaptra_runs[ADAPTRA_ZB];
    const lh_sim_options sim = {.size = sizeof sim,
                                .receives = zb->receives,
                                .coupled_queue = zb->send_queue};
    const lh_host_exchange_options o = {.size = sizeof o, .sim = &sim};
    lh_host_exchange *x = NULL;
    lh_error err = {0};

    paper_check_status(
        lh_host_placement_find_exchange(c->places, now, c->zb, &o, &x, &err),
        &err);
    return x;
}

/* --- one slow link ------------------------------------------------------ */

/* Initially the link between hosts 0 and 4 carries the gradients of device 0.
 * If host 4 swaps with another host of replica 0, the link carries activations
 * instead. */
typedef struct one_link {
    double data, messages, adapted, best; /* ms */
} one_link;

/* Returns slowdowns with only that link slow; `links` has their entries. */
static lh_host_slowdowns slow_link(double delay_ms,
                                   lh_host_link_delay links[2 * HOSTS])
{
    return (lh_host_slowdowns){.size = sizeof(lh_host_slowdowns),
                               .n_links =
                                   add_slow_links(1, 1 << 4, delay_ms, links),
                               .links = links};
}

/* Returns ZB's makespan if the link carries gradients. */
static double data_ms(const cluster *c, double delay_ms)
{
    lh_host_link_delay links[2 * HOSTS];
    const lh_host_slowdowns now = slow_link(delay_ms, links);

    return placement_ms(c, &now, NULL, ADAPTRA_ZB);
}

static one_link link_ms(const cluster *c, double delay_ms)
{
    lh_host_link_delay links[2 * HOSTS];
    const lh_host_slowdowns now = slow_link(delay_ms, links);
    one_link r = {.data = data_ms(c, delay_ms)};

    /* Put hosts 0 and 4 on each pair of neighbouring stages; take the longest.
     */
    for (uint32_t d = 0; d + 1 < seven.stages; d++) {
        uint32_t hosts[HOSTS] = {0, 1, 2, 3, 4, 5, 6, 7};

        hosts[0] = d;
        hosts[d] = 0;
        hosts[4] = hosts[d + 1];
        hosts[d + 1] = 4;
        double ms = placement_ms(c, &now, hosts, ADAPTRA_ZB);
        if (ms > r.messages) {
            r.messages = ms;
            r.adapted = placement_ms(c, &now, hosts, ADAPTRA_FULL);
        }
    }
    lh_host_exchange *x = find_exchange(c, &now);
    r.best = (double)x->predicted_ns * 1e-6;
    lh_host_exchange_free(x);
    return r;
}

static void print_links(FILE *to, const cluster *c)
{
    double quiet = placement_ms(c, NULL, NULL, ADAPTRA_ZB);

    fputs("| ms a packet, a message | ZB, it carries data | it carries "
          "messages | Adaptra then | Falcon's gain | Adaptra's over Falcon | "
          "it carries nothing |\n| --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int i = 0; i <= 3; i++) {
        one_link r = link_ms(c, 10 * i);

        fprintf(to,
                "| %g, %d | %.0f, %.2f times | %.0f, %.2f times | %.0f | %.2f "
                "| %.2f | %.0f |\n",
                0.125 * i, PACKETS * i / 8, r.data, r.data / quiet, r.messages,
                r.messages / quiet, r.adapted, r.data / r.messages,
                r.messages / r.adapted, r.best);
    }
}

/* --- between two switches ----------------------------------------------- */

static void print_switches(FILE *to, const cluster *c)
{
    fputs("\n| ms a message | ZB, as it begins | ZB, the best of all places | "
          "Adaptra then | orders of hosts, different |\n"
          "| --- | --- | --- | --- | --- |\n",
          to);
    for (int i = 1; i <= 3; i++) {
        lh_host_link_delay links[HOSTS * HOSTS];
        const lh_host_slowdowns now = {
            .size = sizeof now,
            .n_links = add_slow_links(0xf, 0xf0, 10 * i, links),
            .links = links};
        lh_host_exchange *x = find_exchange(c, &now);

        fprintf(to, "| %d | %.0f | %.0f | %.0f | %u, %u |\n", 10 * i,
                (double)x->current_ns * 1e-6, (double)x->predicted_ns * 1e-6,
                placement_ms(c, &now, x->hosts, ADAPTRA_FULL),
                (unsigned)x->n_evaluated, (unsigned)x->n_simulated);
        lh_host_exchange_free(x);
    }
}

void adaptra_placement(FILE *to, const page_options *how)
{
    cluster c = make_cluster(TOKENS);

    (void)how; /* --quick has no effect: this part is fast */
    print_links(to, &c);
    print_switches(to, &c);
    free_cluster(&c);
}

/* --- claims ------------------------------------------------------------- */

/* Adds the figures' numbers for one length of messages. */
static void claim_placement(score *s, FILE *to, const cluster *c, bool few)
{
    double quiet = placement_ms(c, NULL, NULL, ADAPTRA_ZB);
    one_link r = link_ms(c, 30);
    const struct {
        const char *claimed[2];
        double value, paper;
        bool is_bound; /* the published number is the largest possible */
        const char *why;
    } lines[] = {
        {{"ZB, the slow link carries data, over no delay",
          "the same with messages of 4096 tokens: data"},
         r.data / quiet,
         8.04,
         false,
         "messages of 2048 tokens, as in the predictions from jobs; volumes "
         "are guesses; n, t as in figure 14"},
        {{"ZB, it carries messages", "the same: messages"},
         r.messages / quiet,
         2.24,
         true,
         "\"at most\", with which no slowdown agrees, too"},
        {{"Falcon's gain", "the same: Falcon's gain"},
         r.data / r.messages,
         3.6,
         false,
         "the row above is only a bound; inputs as in the first of these rows"},
        {{"Adaptra's over Falcon", "the same: Adaptra's over Falcon"},
         r.messages / r.adapted,
         1.96,
         false,
         "as for the first of these rows"},
    };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        score_line l = {"figures 3, 18",
                        lines[i].claimed[!few],
                        "two replicas of equal stages",
                        score_ratio(lines[i].value, lines[i].paper),
                        .digits = 2,
                        .unit = "",
                        .as = few ? SCORE_INFORMATIVE : SCORE_VARIANT,
                        .why = few ? lines[i].why : "as in the tables below"};

        l.row.has_low = !lines[i].is_bound;
        score_print_line(s, &l, to);
    }
}

void adaptra_claim_placement(score *s, FILE *to)
{
    for (int few = 1; few >= 0; few--) {
        cluster c = make_cluster(few ? FEW_TOKENS : TOKENS);

        claim_placement(s, to, &c, few);
        free_cluster(&c);
    }
}
