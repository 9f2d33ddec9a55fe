"""What passes between the processes: workflow IDs, names of signals and queries, and messages.

Every workflow, activity, signal, query and update takes one model, so that fields can be added.
No message holds a secret or a log: secrets are named by reference, evidence lies in a file.
"""
