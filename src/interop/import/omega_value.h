/* SPDX-License-Identifier: Apache-2.0 */
/* References between a configuration's values, as in OmegaConf 2.3:
 * "${a.b}" from the root, "${.b}" beside the key, "${..b}" one level above, and
 * NeMo's functions "${multiply:4, ${.hidden_size}}". */
#ifndef LHI_INTEROP_IMPORT_OMEGA_VALUE_H
#define LHI_INTEROP_IMPORT_OMEGA_VALUE_H

#include "format/document/tree.h"

enum { LHI_OMEGA_SIZE = 1024 }; /* maximum bytes of a resolved value */

/* Writes a scalar's value after its references are resolved. Returns false if
 * it refers to a value that the document does not define, to itself, or is too
 * long. */
bool lhi_omega_resolve(const lhi_doc *doc, const lhi_node *node,
                       char text[LHI_OMEGA_SIZE]);

#endif
