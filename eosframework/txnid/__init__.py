"""Who may write: transactional ids, and which partition goes with which id.

Pure: nothing here talks to a broker. It refuses names that would make ids ambiguous and
source topics that cannot share a task.
"""
