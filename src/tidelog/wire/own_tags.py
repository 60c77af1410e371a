"""Tagged fields of ours in Kafka's messages. A broker passes over those that it does not know (KIP-482).

9320    of an AcknowledgementBatch: why its records were released or rejected, UTF-8; for their dead letters alone
"""

from __future__ import annotations

REASON = 9320
REASON_BYTES_MAX = 1000
