/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/measure.h"

#include "base/realtime.h"
#include "base/sort.h"
#include "runtime/transport/transport.h"

#include <stdlib.h>
#include <string.h>

/* Message sizes of the measurement, in bytes. */
static const size_t sizes[] = {64, 4096, 65536, 1 << 18, 1 << 20, 1 << 22};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Parameters for the two processes. */
typedef struct ping_options {
    uint32_t repeats;
} ping_options;

void lhi_fit_link(const double *bytes, const double *ns, uint32_t n,
                  double *alpha_ns, double *beta_ns_per_byte)
{
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (uint32_t i = 0; i < n; i++) {
        double weight = 1 / (ns[i] * ns[i]);
        w += weight;
        wx += weight * bytes[i];
        wy += weight * ns[i];
        wxx += weight * bytes[i] * bytes[i];
        wxy += weight * bytes[i] * ns[i];
    }
    double beta = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    *beta_ns_per_byte = beta > 0 ? beta : 0;
    double alpha = (wy - *beta_ns_per_byte * wx) / w;
    *alpha_ns = alpha > 0 ? alpha : 0;
}

/* Sends one message of `size` bytes to rank `peer` (`sends`), or receives one
 * from it into `data`, and waits until it is done. */
static lh_status transfer(lhi_net *net, uint32_t peer, bool sends, uint64_t tag,
                          void *data, size_t size, lh_error *err)
{
    lhi_net_op op = {0};
    if (sends)
        LHI_TRY(lhi_net_send(net, peer, tag, data, size, LHI_NET_NO_LINK,
                             lhi_now_ns(), LHI_NET_NO_TURN, &op, err));
    else
        LHI_TRY(lhi_net_receive(net, peer, tag, data, size, &op, err));
    return lhi_net_wait(net, &op, 0, err);
}

/* Measures `repeats` round trips between ranks a and b for each message size;
 * stores half the median, the time of one way, in `out`. */
static lh_status measure_round_trips(lhi_net *net, uint32_t a, uint32_t b,
                                     uint64_t tag, uint32_t repeats, char *data,
                                     int64_t *times, double *out, lh_error *err)
{
    bool leads = lhi_net_rank(net) == a;
    uint32_t peer = leads ? b : a;
    for (uint32_t s = 0; s < N_SIZES; s++) {
        for (uint32_t i = 0; i < repeats + 2; i++) { /* two warm-up rounds */
            int64_t begin = lhi_now_ns();
            LHI_TRY(transfer(net, peer, leads, tag++, data, sizes[s], err));
            LHI_TRY(transfer(net, peer, !leads, tag++, data, sizes[s], err));
            if (i >= 2)
                times[i - 2] = lhi_now_ns() - begin;
        }
        out[s] = (double)lhi_median_ns(times, repeats) / 2;
    }
    return LH_OK;
}

lh_status lhi_measure_ping(lhi_net *net, uint32_t a, uint32_t b, uint64_t tag,
                           uint32_t repeats, double *alpha_ns,
                           double *beta_ns_per_byte, lh_error *err)
{
    double bytes[N_SIZES], ns[N_SIZES];
    char *data = calloc(1, sizes[N_SIZES - 1]);
    int64_t *times = calloc(repeats + 1u, sizeof *times);
    lh_status status =
        data && times
            ? measure_round_trips(net, a, b, tag, repeats, data, times, ns, err)
            : lhi_fail_nomem(err);
    for (uint32_t i = 0; i < N_SIZES; i++)
        bytes[i] = (double)sizes[i];
    if (status == LH_OK)
        lhi_fit_link(bytes, ns, N_SIZES, alpha_ns, beta_ns_per_byte);
    free(data);
    free(times);
    return status;
}

/* Main function for the two ranks that measure a link; rank 0 returns alpha
 * (ns) and beta (ns per byte) in *result. */
static lh_status rank_main(lhi_net *net, void *of, char **result, size_t *size,
                           lh_error *err)
{
    const ping_options *p = of;
    double *out = calloc(2, sizeof *out);
    lh_status status =
        out ? lhi_measure_ping(net, 0, 1, 1, p->repeats, &out[0], &out[1], err)
            : lhi_fail_nomem(err);
    if (status == LH_OK && lhi_net_rank(net) == 0) {
        *result = (char *)out;
        *size = 2 * sizeof *out;
    } else {
        free(out);
    }
    return status;
}

lh_status lhi_measure_link(uint32_t repeats, double *alpha_ns,
                           double *beta_ns_per_byte, lh_error *err)
{
    ping_options p = {repeats};
    lhi_rank_result results[2] = {{NULL, 0}, {NULL, 0}};
    double line[2];
    lh_status status = lhi_local_run(2, 0, NULL, rank_main, &p, results, err);
    if (status == LH_OK && results[0].size != sizeof line)
        status = lhi_fail(err, LH_EIO, "rank 0 returned an incomplete result");
    if (status == LH_OK) {
        memcpy(line, results[0].text, sizeof line);
        *alpha_ns = line[0];
        *beta_ns_per_byte = line[1];
    }
    free(results[0].text);
    free(results[1].text);
    return status;
}
