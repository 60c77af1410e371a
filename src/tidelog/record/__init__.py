"""(room card to be written by its builder)"""
