/* SPDX-License-Identifier: Apache-2.0 */
/* Random jobs in virtual time, of which one link, network interface or host
 * becomes slow: the localiser must name it, and nothing else, also after the
 * slowdown has ended. Sequence lengths, and with them passes and messages, vary
 * by replica and iteration. Then quiet iterations: nothing may be slow.
 *
 *     test_host_localiser [SCENARIOS [FIRST [QUIET ITERATIONS]]] */
#include "base/random.h"
#include "cases.h"
#include "resilience/monitor/host_localiser.h"
#include "test.h"

#include <math.h>

enum { MOST_HOSTS = 32, MOST_HOPS = 128, MICROBATCHES = 8, SETTLING = 12 };

static uint32_t n_cases = 200, first_case = 1, n_quiet = 10000;

/* A job with its hops and the actual times without slowdowns. */
typedef struct job {
    lhi_random random;
    uint32_t n_replicas, n_devices, n_hosts, n_hops;
    lhi_hop hops[MOST_HOPS];
    double hop_ns[MOST_HOPS], latency_share[MOST_HOPS];
    double pass_ns[MOST_HOSTS];
    /* Coefficient of variation of a replica's work in an iteration (0.2: single
     * sequences vary by 57 %) and of times; growth per iteration. */
    double spread, noise, trend;
    uint64_t step;
    lhi_host_localiser *localiser;
} job;

/* A slow element of a scenario. */
typedef struct fault {
    lhi_slow_kind kind;
    uint32_t a, b;
    bool sends, receives; /* interface: directions; link: b to a, too */
    double factor;
} fault;

static double draw(job *j, double low, double high)
{
    return low +
           (high - low) * (double)(lhi_random_next(&j->random) >> 11) * 0x1p-53;
}

static uint32_t draw_below(job *j, uint32_t n)
{
    return lhi_random_below(&j->random, n);
}

static double draw_normal(job *j)
{
    return sqrt(-2 * log(draw(j, 0x1p-53, 1))) *
           cos(draw(j, 0, 2 * 3.14159265358979));
}

static void add_hop(job *j, uint32_t from, uint32_t to, bool collective,
                    double ns)
{
    const uint32_t i = j->n_hops++;
    j->hops[i] = (lhi_hop){from, to, collective};
    j->hop_ns[i] = ns * draw(j, 0.8, 1.25);
    j->latency_share[i] = draw(j, 0, 1);
}

static void make_job(job *j, uint64_t seed)
{
    lh_error err = {0};
    *j = (job){0};
    j->random.state = seed;
    j->n_replicas = 2 + draw_below(j, 3);
    j->n_devices = 2 + draw_below(j, 7);
    j->n_hosts = j->n_replicas * j->n_devices;
    j->spread = draw(j, 0, 0.2);
    j->noise = draw(j, 0.01, 0.05);
    j->trend = draw(j, 0, 0.002);
    const double pass = draw(j, 1e7, 1e9), message = draw(j, 1e5, 5e7),
                 ring = draw(j, 1e6, 1e9);
    for (uint32_t h = 0; h < j->n_hosts; h++) {
        const uint32_t d = h % j->n_devices,
                       next = (h + j->n_devices) % j->n_hosts;
        j->pass_ns[h] = pass * draw(j, 0.7, 1.4);
        add_hop(j, h, next, true, ring);
        if (d + 1 < j->n_devices) {
            add_hop(j, h, h + 1, false, message);
            add_hop(j, h + 1, h, false, message);
        }
    }
    CHECK_OK(lhi_host_localiser_make(j->n_replicas, j->n_devices, j->n_hops,
                                     j->hops, &j->localiser, &err),
             err);
}

/* Returns how much longer hop i takes under the fault. */
static double hop_factor(const job *j, const fault *f, uint32_t i)
{
    const lhi_hop *h = &j->hops[i];
    bool slow = false;
    if (f && f->kind == LHI_SLOW_LINK)
        slow = (h->from == f->a && h->to == f->b) ||
               (f->receives && h->from == f->b && h->to == f->a);
    else if (f && f->kind == LHI_SLOW_INTERFACE)
        slow = (f->sends && h->from == f->a) || (f->receives && h->to == f->a);
    return slow ? f->factor : 1;
}

static void iterate(job *j, const fault *f)
{
    double pass_ns[MOST_HOSTS], hop_ns[MOST_HOPS], work[MOST_HOSTS];
    const double error = j->noise / sqrt(MICROBATCHES);
    const double common = 1 + j->trend * (double)j->step++; /* longer ones */
    for (uint32_t r = 0; r < j->n_replicas; r++)
        work[r] = common * fmax(1 + j->spread * draw_normal(j), 0.2);
    for (uint32_t h = 0; h < j->n_hosts; h++) {
        const bool slow = f && f->kind == LHI_SLOW_HOST && f->a == h;
        pass_ns[h] = j->pass_ns[h] * work[h / j->n_devices] *
                     (1 + error * draw_normal(j)) * (slow ? f->factor : 1);
    }
    for (uint32_t i = 0; i < j->n_hops; i++) {
        const lhi_hop *hop = &j->hops[i];
        const double share = j->latency_share[i];
        const double length =
            hop->is_collective
                ? 1
                : share + (1 - share) * work[hop->from / j->n_devices];
        hop_ns[i] = j->hop_ns[i] * length * (1 + error * draw_normal(j)) *
                    hop_factor(j, f, i);
    }
    lhi_host_localiser_add(j->localiser, pass_ns, hop_ns);
}

static fault draw_fault(job *j)
{
    fault f = {.kind = (lhi_slow_kind)draw_below(j, 3)};
    const lhi_hop *hop = &j->hops[draw_below(j, j->n_hops)];
    const uint32_t ways = 1 + draw_below(j, 3);
    f.a = f.kind == LHI_SLOW_LINK ? hop->from : draw_below(j, j->n_hosts);
    f.b = f.kind == LHI_SLOW_LINK ? hop->to : f.a;
    f.sends = f.kind == LHI_SLOW_LINK || (ways & 1);
    f.receives = ways & 2;
    f.factor = draw(j, f.kind == LHI_SLOW_HOST ? 1.3 : 1.5, 8);
    return f;
}

/* Checks that exactly the elements of the fault are slow. */
static bool is_found(const job *j, const fault *f)
{
    uint32_t n, n_expected = 0, n_right = 0;
    const lhi_slow_element *all = lhi_host_localiser_slow(j->localiser, &n);
    if (f->kind == LHI_SLOW_HOST)
        n_expected = 1;
    else if (f->kind == LHI_SLOW_INTERFACE)
        n_expected = (uint32_t)f->sends + f->receives;
    for (uint32_t i = 0; f->kind == LHI_SLOW_LINK && i < j->n_hops; i++)
        n_expected += hop_factor(j, f, i) > 1;
    for (uint32_t i = 0; i < n; i++) {
        const lhi_slow_element *e = &all[i];
        if (e->kind != f->kind)
            continue;
        if (e->kind == LHI_SLOW_LINK)
            n_right += (e->a == f->a && e->b == f->b) ||
                       (f->receives && e->a == f->b && e->b == f->a);
        else
            n_right += e->a == f->a && (e->kind == LHI_SLOW_HOST ||
                                        (e->sends ? f->sends : f->receives));
    }
    return n == n_expected && n_right == n;
}

static void print_slow(const job *j, uint32_t seed, const fault *f)
{
    static const char *const kinds[] = {"link", "interface", "host"};
    uint32_t n;
    const lhi_slow_element *all = lhi_host_localiser_slow(j->localiser, &n);
    if (f)
        fprintf(stderr, "%u: %u x %u, %s %u %u (%d %d) x %.2f, found", seed,
                j->n_replicas, j->n_devices, kinds[f->kind], f->a, f->b,
                f->sends, f->receives, f->factor);
    for (uint32_t i = 0; i < n; i++)
        fprintf(stderr, " %s %u %u (%d) x %.2f", kinds[all[i].kind], all[i].a,
                all[i].b, all[i].sends, all[i].factor);
    fprintf(stderr, "\n");
}

static void slow_elements_are_named(void)
{
    uint32_t n_right = 0, n_ended = 0;
    for (uint32_t i = 0; i < n_cases; i++) {
        job j;
        uint32_t n;
        make_job(&j, first_case + i);
        const uint32_t begin = 10 + draw_below(&j, 40);
        const fault f = draw_fault(&j);
        for (uint32_t k = 0; k < begin; k++)
            iterate(&j, NULL);
        for (uint32_t k = 0; k < SETTLING; k++)
            iterate(&j, &f);
        const bool right = is_found(&j, &f);
        n_right += right;
        if (!right)
            print_slow(&j, first_case + i, &f);
        for (uint32_t k = 0; k < 2 * SETTLING; k++)
            iterate(&j, NULL);
        lhi_host_localiser_slow(j.localiser, &n);
        n_ended += n == 0;
        if (n > 0)
            print_slow(&j, first_case + i, &f);
        lhi_host_localiser_free(j.localiser);
    }
    printf("%u of %u located, %u ended\n", n_right, n_cases, n_ended);
    /* 9,998 and 9,997 of 10,000 other scenarios. */
    CHECK(n_right >= 0.999 * n_cases && n_ended >= 0.999 * n_cases);
}

static void nothing_is_slow_in_quiet_iterations(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        job j;
        uint32_t n_wrong = 0;
        make_job(&j, first_case + 1000 + i);
        j.spread = 0.05 * (i + 1);
        j.trend = i % 2 ? 0 : 1e-4;
        for (uint32_t k = 0; k < n_quiet; k++) {
            uint32_t n;
            iterate(&j, NULL);
            lhi_host_localiser_slow(j.localiser, &n);
            if (n > 0 && n_wrong++ == 0)
                print_slow(&j, k, NULL);
        }
        CHECK_MSG(n_wrong == 0, "%u of %u iterations", n_wrong, n_quiet);
        lhi_host_localiser_free(j.localiser);
    }
}

/* Emulated links may take no time; a delay of one is found nevertheless. */
static void a_link_without_a_normal_time_is_located(void)
{
    const lhi_hop hops[] = {{0, 1, false}, {2, 3, false}};
    const double pass_ns[] = {1e6, 1e6, 1e6, 1e6};
    lhi_host_localiser *l = NULL;
    lh_error err = {0};
    uint32_t n;
    CHECK_OK(lhi_host_localiser_make(2, 2, 2, hops, &l, &err), err);
    for (uint32_t k = 0; k < 20 + SETTLING; k++) {
        const double hop_ns[] = {k < 20 ? 0 : 2e6, 0};
        lhi_host_localiser_add(l, pass_ns, hop_ns);
    }
    const lhi_slow_element *all = lhi_host_localiser_slow(l, &n);
    CHECK_INT(n, 1);
    CHECK(n == 1 && all[0].kind == LHI_SLOW_LINK && all[0].a == 0 &&
          all[0].b == 1 && fabs(all[0].extra_ns - 2e6) < 1);
    lhi_host_localiser_free(l);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    if (argc > 3)
        n_quiet = (uint32_t)strtoul(argv[3], NULL, 10);
    RUN(slow_elements_are_named);
    RUN(nothing_is_slow_in_quiet_iterations);
    RUN(a_link_without_a_normal_time_is_located);
    return test_summary();
}
