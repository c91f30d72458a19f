/* SPDX-License-Identifier: Apache-2.0 */
/* `--inject west-east=latency:20ms,gbps:10`: links with other delays. */
#ifndef CLI_INJECT_H
#define CLI_INJECT_H

#include "inputs.h"

/* A copy of the pipeline in which the links that `text` names have the delays
 * given there: LINK=KEY:VALUE,...;LINK=... with the keys latency and transfer
 * (times with a unit) and gbps (of messages of `message_bytes`). LINK is a name
 * that the pipeline gives to links; `a-b` for those called `a>b` and `b>a`; or
 * two devices, `0-1` or `0>1`, whose link is added where there is none. */
lh_status cli_inject(cli *c, const char *text, const lh_pipeline *pipeline,
                     uint64_t message_bytes, lh_pipeline **out);

/* A copy of the pipeline in which everything is `speed` times as fast. */
lh_status cli_faster(cli *c, const lh_pipeline *pipeline, uint32_t speed,
                     lh_pipeline **out);

#endif
