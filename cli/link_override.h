/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `--inject west-east=latency:20ms,gbps:10`: overrides link delays.
 */
#ifndef CLI_LINK_OVERRIDE_H
#define CLI_LINK_OVERRIDE_H

#include "inputs.h"

/* Copies the pipeline and overrides the links' delays in `text`:
 * LINK=KEY:VALUE,...;LINK=... with the keys latency and transfer (times with a
 * unit) and gbps (for messages with `message_bytes`). LINK is a link name in
 * the pipeline; `a-b` for the links `a>b` and `b>a`; or two devices, `0-1` or
 * `0>1`, whose link is added if missing. */
lh_status cli_inject(cli *c, const char *text, const lh_pipeline *pipeline,
                     uint64_t message_bytes, lh_pipeline **out);

/* Copies the pipeline with all durations divided by `speed` into *out, which
 * the caller frees. */
lh_status cli_scale_speed(cli *c, const lh_pipeline *pipeline, uint32_t speed,
                          lh_pipeline **out);

#endif
