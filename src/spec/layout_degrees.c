/* SPDX-License-Identifier: Apache-2.0 */
/* How the degrees of a layout go together. */
#include <longhaul/job.h>

uint32_t lh_layout_expert_tensor(const lh_layout *layout)
{
    if (layout->expert_tensor)
        return layout->expert_tensor;
    return layout->expert > 1 ? 1 : layout->tensor;
}

uint64_t lh_layout_expert_block(const lh_layout *layout)
{
    return (uint64_t)layout->expert * lh_layout_expert_tensor(layout);
}
